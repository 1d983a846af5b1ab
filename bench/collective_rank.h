// One rank of the collectives benchmark: its memory, its calls, and what they must come to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/ordered_reduction.h"
#include "collectives/process_group.h"
#include "device/device.h"

namespace zero::bench {

enum class Collective : uint8_t { kAllGather, kAllToAll, kReduceScatter, kAllReduce };
inline constexpr Collective kCollectives[] = {Collective::kAllGather, Collective::kAllToAll,
                                              Collective::kReduceScatter, Collective::kAllReduce};
const char* Name(Collective collective);
// busbw = algbw x factor, so that the number is that of a link whatever the number of ranks:
// (N-1)/N of the size crosses for a gather, an all-to-all and a reduce-scatter, twice that for an
// all-reduce.
double BusFactor(Collective collective, int ranks);

// All calls are over a buffer of size() x `part` elements: what is gathered, exchanged or reduced.
class CollectiveRank {
 public:
  // Room for parts of up to `largest_part` elements.
  static absl::StatusOr<std::unique_ptr<CollectiveRank>> Create(Device* device, ProcessGroup* group,
                                                                DType type, int64_t largest_part);

  // Sets what is sent, and spoils what is received.
  absl::Status Prepare(int64_t part);
  // In place: the buffer that is sent is the one that receives; gathers only.
  absl::Status Enqueue(Collective collective, int64_t part, bool in_place);
  absl::Status Synchronize();
  // Elements that are not what they must be. After Prepare and one Enqueue; waits.
  absl::StatusOr<int64_t> Wrong(Collective collective, int64_t part, bool in_place);

  // Where rank r's copy loop reads: all ranks' sent buffers are in one process.
  const char* sent() const { return static_cast<const char*>(send_.data()); }
  char* received() const { return static_cast<char*>(receive_.data()); }

 private:
  CollectiveRank(Device* device, ProcessGroup* group, DType type)
      : device_(device), group_(group), type_(type) {}
  int64_t bytes(int64_t elements) const { return elements * SizeOf(type_); }
  // Small whole numbers: their sums are exact in any order and dtype.
  float Value(int rank, int64_t index) const { return static_cast<float>((rank * 7 + index) % 5); }

  Device* const device_;
  ProcessGroup* const group_;
  const DType type_;
  Buffer send_, receive_, host_;
  std::unique_ptr<OrderedReduction> reduction_;
  std::unique_ptr<Stream> communication_, arithmetic_;
};

}  // namespace zero::bench
