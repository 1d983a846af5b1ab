// Who adds the ranks' gradients: this library, in a fixed order, or the back end of the group.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "collectives/process_group.h"

namespace zero {

enum class ReductionKind : uint8_t {
  kOrdered,  // the same bits on every back end
  kNative,   // fewer bytes between machines, no promise of bits
  kAuto,     // ordered on one machine, else native where the group has it
};

// "ordered", "native", "auto".
const char* Name(ReductionKind kind);
// The inverse of Name. kInvalidArgument lists the three names.
absl::StatusOr<ReductionKind> ParseReductionKind(const std::string& name);

struct ReductionChoice {
  ReductionKind kind = ReductionKind::kOrdered;  // never kAuto
  std::string text;                              // which, and why
};
// What `kind` means for `group`: the same on every rank. kInvalidArgument for kNative on a group
// that has no reduction of its own.
absl::StatusOr<ReductionChoice> ChooseReduction(ReductionKind kind, const ProcessGroup& group);

}  // namespace zero
