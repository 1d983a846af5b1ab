// Which SIMD instructions the host kernels use. Results do not depend on it.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace zero {

// Lets the kernels use `name` or what the CPU has below it: "avx512", "avx2", "sse4", "ssse3",
// "scalar"; "best" lifts the limit. For the whole process, other users of Highway included; call it
// while no kernel runs. kInvalidArgument lists the names.
absl::Status LimitSimdTargets(const std::string& name);

// What the kernels use now: one of the names above, or Highway's name on other CPUs than x86.
std::string SimdTargetName();

}  // namespace zero
