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
                                                          int64_t receive_bytes,
                                                          ReductionKind kind) {
  ZERO_ASSIGN_OR_RETURN(ReductionChoice choice, ChooseReduction(kind, *group));
  const bool in_place =
      choice.kind == ReductionKind::kOrdered && group->has_ordered_reduction(device->kind());
  OrderedReduction reduction(group, std::move(choice), in_place);
  if (group->size() == 1) return reduction;
  for (int i = 0; i < 2; ++i) {
    ZERO_ASSIGN_OR_RETURN(
        Buffer buffer, device->Allocate(receive_bytes, MemoryCategory::kReceive, "receive buffer"));
    reduction.receive_.push_back(std::move(buffer));
    reduction.handover_.emplace_back(device);
  }
  return reduction;
}

absl::Status OrderedReduction::Exchange(const Stream& stream, const char* name,
                                        absl::Span<const ReductionPiece> pieces,
                                        absl::Span<char* const> received) const {
  if (choice_.kind == ReductionKind::kNative) {
    std::vector<ReduceScatterPiece> parts;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const ReductionPiece& piece = pieces[i];
      parts.push_back(
          {piece.send, piece.slice * SizeOf(piece.type), received[i], piece.columns, piece.type});
    }
    return group_->ReduceScatter(stream, name, parts);
  }
  std::vector<AllToAllPiece> parts;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int64_t element = SizeOf(pieces[i].type);
    parts.push_back(
        {pieces[i].send, pieces[i].slice * element, received[i], pieces[i].columns * element});
  }
  return group_->AllToAll(stream, name, parts);
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
  std::vector<char*> received;
  int64_t end = 0;
  for (const ReductionPiece& piece : pieces) {
    // Elements of the next piece may be wider than those of the last.
    const int64_t begin = (end + kAlignment - 1) / kAlignment * kAlignment;
    end = begin + piece.columns * SizeOf(piece.type) * part_count();
    if (end > receive.bytes()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", end,
                                                     " bytes or more do not fit the receive "
                                                     "buffer of ",
                                                     receive.bytes()));
    }
    received.push_back(receive.bytes_at(begin));
  }
  if (in_place_) return group_->ReduceInOrder(arithmetic, name, pieces);
  next_ = 1 - next_;
  ZERO_RETURN_IF_ERROR(handover.Write(
      communication, [&] { return Exchange(communication, name, pieces, received); }));
  return handover.Read(arithmetic, [&]() -> absl::Status {
    for (size_t i = 0; i < pieces.size(); ++i) {
      ZERO_RETURN_IF_ERROR(EnqueueSum(arithmetic, pieces[i], received[i], part_count()));
    }
    return absl::OkStatus();
  });
}

}  // namespace zero
