// Blocks of a file in many requests of io_uring at once.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "io/disk_block.h"
#include "io/disk_file.h"

namespace zero {

// For one thread at a time.
class DiskRing {
 public:
  // Of `depth` requests at once. kUnimplemented where there is none to be had, with why: not in
  // this build, not in this kernel, not allowed, no memory.
  static absl::StatusOr<std::unique_ptr<DiskRing>> Create(int depth);
  ~DiskRing();

  // Transfers until every block is finished or, after one has failed, those under way are. An error
  // is the ring's own, which is of no more use then: nothing is under way any more, and what is not
  // finished can be done in another way.
  absl::Status Run(absl::Span<DiskBlock> blocks, const DiskFile& file, bool writes);

 private:
  struct Ring;
  explicit DiskRing(std::unique_ptr<Ring> ring);

  const std::unique_ptr<Ring> ring_;
};

}  // namespace zero
