#include "collectives/ordered_reduction.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "kernels/kernels.h"

namespace zero {
namespace {

constexpr int64_t kAlignment = 64;  // bytes, of each piece's parts

absl::Status EnqueueSum(const Stream& stream, const ReductionPiece& piece, const void* parts,
                        int64_t part_count) {
  const bool in_place = parts == piece.out && piece.type == piece.out_type;
  if (part_count == 1 && in_place && !piece.accumulate) return absl::OkStatus();
  OrderedSumArguments sum;
  sum.parts = parts;
  sum.part_type = piece.type;
  sum.part_count = part_count;
  sum.part_stride = piece.columns;
  sum.out = piece.out;
  sum.out_type = piece.out_type;
  sum.accumulate = piece.accumulate;
  sum.n = piece.columns;
  return OrderedSum(stream, sum);
}

}  // namespace

absl::StatusOr<OrderedReduction> OrderedReduction::Create(Device* device, ProcessGroup* group,
                                                          int64_t receive_bytes) {
  OrderedReduction reduction(group);
  if (group->size() == 1) return reduction;
  for (int i = 0; i < 2; ++i) {
    ZERO_ASSIGN_OR_RETURN(
        Buffer buffer, device->Allocate(receive_bytes, MemoryCategory::kReceive, "receive buffer"));
    reduction.receive_.push_back(std::move(buffer));
    reduction.handover_.emplace_back(device);
  }
  return reduction;
}

absl::Status OrderedReduction::Run(const Stream& communication, const Stream& arithmetic,
                                   const char* name, absl::Span<const ReductionPiece> pieces) {
  const int size = group_->size();
  for (const ReductionPiece& piece : pieces) {
    if (piece.columns >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", piece.columns, " columns"));
  }
  if (size == 1) {
    for (const ReductionPiece& piece : pieces) {
      ZERO_RETURN_IF_ERROR(EnqueueSum(arithmetic, piece, piece.send, 1));
    }
    return absl::OkStatus();
  }

  const Buffer& receive = receive_[next_];
  Handover& handover = handover_[next_];
  std::vector<AllToAllPiece> exchanged;
  int64_t end = 0;
  for (const ReductionPiece& piece : pieces) {
    // Elements of the next piece may be wider than those of the last.
    const int64_t begin = (end + kAlignment - 1) / kAlignment * kAlignment;
    AllToAllPiece part;
    part.send = piece.send;
    part.send_stride = piece.slice * SizeOf(piece.type);
    part.bytes = piece.columns * SizeOf(piece.type);
    end = begin + part.bytes * size;
    if (end > receive.bytes()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", end,
                                                     " bytes or more do not fit the receive "
                                                     "buffer of ",
                                                     receive.bytes()));
    }
    part.receive = receive.bytes_at(begin);
    exchanged.push_back(part);
  }
  next_ = 1 - next_;
  ZERO_RETURN_IF_ERROR(handover.Write(
      communication, [&] { return group_->AllToAll(communication, name, exchanged); }));
  return handover.Read(arithmetic, [&]() -> absl::Status {
    for (size_t i = 0; i < pieces.size(); ++i) {
      ZERO_RETURN_IF_ERROR(EnqueueSum(arithmetic, pieces[i], exchanged[i].receive, size));
    }
    return absl::OkStatus();
  });
}

}  // namespace zero
