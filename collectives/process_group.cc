#include "collectives/process_group.h"

#include "absl/strings/str_cat.h"

namespace zero {

absl::Status ProcessGroup::ReduceScatter(const Stream&, const char* name,
                                         absl::Span<const ReduceScatterPiece>) {
  return absl::UnimplementedError(
      absl::StrCat("reduce-scatter '", name, "': this group has no reduction of its own"));
}

}  // namespace zero
