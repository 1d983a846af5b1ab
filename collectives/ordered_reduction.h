// Reduce-scatter with one order of additions on every back end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "collectives/process_group.h"
#include "collectives/reduction_kind.h"
#include "device/buffer.h"
#include "device/device.h"
#include "device/handover.h"

namespace zero {

// Each rank sends to rank r the columns that r owns, in the dtype written; r adds the parts in fp32
// in rank order and rounds once (kernels.h, OrderedSum). Sends (N-1)/N of the elements, as a ring
// reduce-scatter does, and gives the same bits on every back end and for every cut into pieces.
//
// Parts arrive in two receive buffers used in turn, so that the sum of one call runs while the
// next is on its way.
//
// The native kind lets the group add instead: rank r receives one part, the sum, rounded to the
// dtype written, and only its own fp32 addition to `out` is left. Order and bits are the back
// end's.
//
// Where the group can read all ranks' memory (ProcessGroup::ReduceInOrder), nothing is received:
// the sum itself is the collective.
class OrderedReduction {
 public:
  // `receive_bytes`: size of each of the two receive buffers; the largest call needs the bytes of
  // its pieces over all ranks, each piece but the last rounded up to 64. Allocated now, as
  // MemoryCategory::kReceive. None for one rank. `device` and `group` outlive the object; the
  // streams must have been synchronised when it goes. Errors of `kind`: see ChooseReduction. The
  // native kind, and sums that receive nothing, take as much memory, so that a plan holds on every
  // back end.
  static absl::StatusOr<OrderedReduction> Create(Device* device, ProcessGroup* group,
                                                 int64_t receive_bytes,
                                                 ReductionKind kind = ReductionKind::kOrdered);

  // Which kind it is, and why, for people.
  const std::string& reduction_choice() const { return choice_.text; }

  // Enqueues one exchange on `communication` and the sums on `arithmetic`. When ReaderOf these has
  // run, the sent memory may be changed; when `arithmetic` has, the outputs may be read.
  // kInvalidArgument if the pieces do not fit the receive buffer; nothing enqueued.
  absl::Status Run(const Stream& communication, const Stream& arithmetic, const char* name,
                   absl::Span<const ReductionPiece> pieces);
  // The stream that reads what is sent: `arithmetic` where the sum does it itself, as for one rank.
  const Stream& ReaderOf(const Stream& communication, const Stream& arithmetic) const {
    return in_place_ || group_->size() == 1 ? arithmetic : communication;
  }

 private:
  OrderedReduction(ProcessGroup* group, ReductionChoice choice, bool in_place)
      : group_(group), choice_(std::move(choice)), in_place_(in_place) {}

  // Ranks' parts that arrive of each piece.
  int64_t part_count() const { return choice_.kind == ReductionKind::kNative ? 1 : group_->size(); }
  absl::Status Exchange(const Stream& stream, const char* name,
                        absl::Span<const ReductionPiece> pieces,
                        absl::Span<char* const> received) const;

  ProcessGroup* group_;
  ReductionChoice choice_;
  bool in_place_;  // the sum reads all ranks' memory where it lies
  std::vector<Buffer> receive_;
  std::vector<Handover> handover_;
  size_t next_ = 0;
};

}  // namespace zero
