#include "kernels/simd_targets.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_targets.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

int64_t CompiledTarget() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero {

HWY_EXPORT(CompiledTarget);

namespace {

// Highway gives a better target of one architecture a lower bit: `target` - 1 is all better ones.
struct Limit {
  const char* name;
  int64_t target;
};
constexpr Limit kLimits[] = {
#if HWY_ARCH_X86
    {"avx512", HWY_AVX3},   {"avx2", HWY_AVX2}, {"sse4", HWY_SSE4}, {"ssse3", HWY_SSSE3},
#endif
    {"scalar", HWY_EMU128},
};

}  // namespace

absl::Status LimitSimdTargets(const std::string& name) {
  std::string names = "best";
  if (name == names) {
    hwy::DisableTargets(0);
    return absl::OkStatus();
  }
  for (const Limit& limit : kLimits) {
    if (name == limit.name) {
      hwy::DisableTargets(limit.target - 1);
      return absl::OkStatus();
    }
    absl::StrAppend(&names, ", ", limit.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("SIMD target '", name, "' is none of ", names));
}

std::string SimdTargetName() {
  const int64_t target = HWY_DYNAMIC_DISPATCH(CompiledTarget)();
  if (target == HWY_SCALAR) return "scalar";
  for (const Limit& limit : kLimits) {
    if (target == limit.target) return limit.name;
  }
  return hwy::TargetName(target);
}

}  // namespace zero
#endif  // HWY_ONCE
