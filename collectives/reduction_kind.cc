#include "collectives/reduction_kind.h"

#include "absl/strings/str_cat.h"

namespace zero {

const char* Name(ReductionKind kind) {
  switch (kind) {
    case ReductionKind::kOrdered:
      return "ordered";
    case ReductionKind::kNative:
      return "native";
    case ReductionKind::kAuto:
      return "auto";
  }
  return "unknown";
}

absl::StatusOr<ReductionKind> ParseReductionKind(const std::string& name) {
  for (ReductionKind kind :
       {ReductionKind::kOrdered, ReductionKind::kNative, ReductionKind::kAuto}) {
    if (name == Name(kind)) return kind;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("reduction '", name, "' is none of ordered, native, auto"));
}

absl::StatusOr<ReductionChoice> ChooseReduction(ReductionKind kind, const ProcessGroup& group) {
  switch (kind) {
    case ReductionKind::kOrdered:
      return ReductionChoice{ReductionKind::kOrdered, "ordered, as configured"};
    case ReductionKind::kNative:
      if (group.has_native_reduction()) {
        return ReductionChoice{ReductionKind::kNative, "native, as configured"};
      }
      return absl::InvalidArgumentError(
          "reduction 'native': this group has no reduction of its own; use ordered or auto");
    case ReductionKind::kAuto:
      break;
  }
  if (group.single_host()) {
    return ReductionChoice{ReductionKind::kOrdered, "ordered: all ranks are on one host"};
  }
  if (group.has_native_reduction()) {
    return ReductionChoice{ReductionKind::kNative, "native: the ranks are on several hosts"};
  }
  return ReductionChoice{ReductionKind::kOrdered,
                         "ordered: this group has no reduction of its own"};
}

}  // namespace zero
