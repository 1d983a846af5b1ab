#include "collectives/checked_group.h"

#include <algorithm>
#include <vector>

#include "collectives/call_description.h"

namespace zero {
namespace {

template <class Piece>
std::vector<int64_t> BytesOf(absl::Span<const Piece> pieces) {
  std::vector<int64_t> bytes;
  for (const Piece& piece : pieces) bytes.push_back(piece.bytes);
  return bytes;
}

}  // namespace

CheckedGroup::CheckedGroup(ProcessGroup* group, Rendezvous* rendezvous)
    : group_(group), rendezvous_(rendezvous) {
  callback_ = rendezvous_->OnFailure([this](const absl::Status& reason) { group_->Abort(reason); });
}

CheckedGroup::~CheckedGroup() { rendezvous_->RemoveCallback(callback_); }

// Said before the call: one that fits no other may never return.
void CheckedGroup::Say(const char* operation, const char* name, absl::Span<const int64_t> bytes) {
  // Refused, and so never called.
  if (std::any_of(bytes.begin(), bytes.end(), [](int64_t n) { return n < 0; })) return;
  rendezvous_->Agree(next_index_++, DescribeCall(operation, name, bytes));
}

absl::Status CheckedGroup::AllToAll(const Stream& stream, const char* name,
                                    absl::Span<const AllToAllPiece> pieces) {
  Say("all-to-all", name, BytesOf(pieces));
  return group_->AllToAll(stream, name, pieces);
}

absl::Status CheckedGroup::AllGather(const Stream& stream, const char* name,
                                     absl::Span<const AllGatherPiece> pieces) {
  Say("all-gather", name, BytesOf(pieces));
  return group_->AllGather(stream, name, pieces);
}

absl::Status CheckedGroup::ReduceScatter(const Stream& stream, const char* name,
                                         absl::Span<const ReduceScatterPiece> pieces) {
  std::vector<int64_t> bytes;
  for (const ReduceScatterPiece& piece : pieces) {
    bytes.push_back(piece.elements * SizeOf(piece.type));
  }
  Say("reduce-scatter", name, bytes);
  return group_->ReduceScatter(stream, name, pieces);
}

absl::Status CheckedGroup::ReduceInOrder(const Stream& stream, const char* name,
                                         absl::Span<const ReductionPiece> pieces) {
  std::vector<int64_t> bytes;
  for (const ReductionPiece& piece : pieces) bytes.push_back(piece.columns * SizeOf(piece.type));
  Say("ordered reduction", name, bytes);
  return group_->ReduceInOrder(stream, name, pieces);
}

absl::Status CheckedGroup::Barrier(const Stream& stream, const char* name) {
  Say("barrier", name, {});
  return group_->Barrier(stream, name);
}

}  // namespace zero
