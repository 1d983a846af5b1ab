#include "collectives/process_group.h"

#include "absl/strings/str_cat.h"

namespace zero {

absl::Status ProcessGroup::ReduceScatter(const Stream&, const char* name,
                                         absl::Span<const ReduceScatterPiece>) {
  return absl::UnimplementedError(
      absl::StrCat("reduce-scatter '", name, "': this group has no reduction of its own"));
}

absl::Status ProcessGroup::ReduceInOrder(const Stream&, const char* name,
                                         absl::Span<const ReductionPiece>) {
  return absl::UnimplementedError(
      absl::StrCat("ordered reduction '", name,
                   "': ranks of this group cannot read each other's memory on this device"));
}

}  // namespace zero
