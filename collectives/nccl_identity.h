// What ranks tell each other before NCCL starts.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace zero {

struct NcclIdentity {
  int version = 0;        // of NCCL
  std::string host;       // its name
  std::string boot;       // of the system: two machines may have one name
  std::string bus_id;     // of the GPU
  std::string unique_id;  // rank 0: what NCCL meets under
  absl::Status status;    // why this rank cannot start

  std::string Encode() const;
  // kDataLoss if `text` is not what Encode made.
  static absl::StatusOr<NcclIdentity> Decode(const std::string& text);
};

// host and boot of this machine.
NcclIdentity IdentityOfThisHost();

// The error of the first rank that has one; kFailedPrecondition if versions differ, or if two ranks
// have the same GPU. Names the ranks, and gives the same answer on every rank.
absl::Status CheckIdentities(absl::Span<const NcclIdentity> ranks);

}  // namespace zero
