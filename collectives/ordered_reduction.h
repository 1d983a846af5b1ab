// Reduce-scatter with one order of additions on every back end.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "collectives/process_group.h"
#include "device/buffer.h"
#include "device/device.h"
#include "device/dtype.h"
#include "device/handover.h"

namespace zero {

// A run of columns of a matrix of size() slices: slice r starts at send + r * slice elements.
// Rank r ends up with out[i] = sum over q of rank q's send[r * slice + i], i in [0, columns).
struct ReductionPiece {
  const void* send = nullptr;  // at the first column of slice 0
  int64_t slice = 0;           // elements
  int64_t columns = 0;
  DType type = DType::kF32;
  void* out = nullptr;  // [columns]
  DType out_type = DType::kF32;
  bool accumulate = false;  // add to out instead of overwriting it
};

// Each rank sends to rank r the columns that r owns, in the dtype written; r adds the parts in fp32
// in rank order and rounds once (kernels.h, OrderedSum). Sends (N-1)/N of the elements, as a ring
// reduce-scatter does, and gives the same bits on every back end and for every cut into pieces.
//
// Parts arrive in two receive buffers used in turn, so that the sum of one call runs while the
// next is on its way.
class OrderedReduction {
 public:
  // `receive_bytes`: size of each of the two receive buffers; the largest call needs the bytes of
  // its pieces over all ranks, each piece but the last rounded up to 64. Allocated now, as
  // MemoryCategory::kReceive. None for one rank. `device` and `group` outlive the object; the
  // streams must have been synchronised when it goes.
  static absl::StatusOr<OrderedReduction> Create(Device* device, ProcessGroup* group,
                                                 int64_t receive_bytes);

  // Enqueues one exchange on `communication` and the sums on `arithmetic`. When both have run, the
  // sent memory may be changed and the outputs read. kInvalidArgument if the pieces do not fit the
  // receive buffer; nothing enqueued. For one rank nothing is sent: the sum reads `send` itself.
  absl::Status Run(const Stream& communication, const Stream& arithmetic, const char* name,
                   absl::Span<const ReductionPiece> pieces);

 private:
  explicit OrderedReduction(ProcessGroup* group) : group_(group) {}

  ProcessGroup* group_;
  std::vector<Buffer> receive_;
  std::vector<Handover> handover_;
  size_t next_ = 0;
};

}  // namespace zero
