// The functions of Highway's library that run-time dispatch needs, for programs that cannot bring
// the library. It takes no better target than AVX-512 without its extensions.
#include <cstdint>

#include "hwy/targets.h"

namespace hwy {
namespace {

int64_t disabled_targets = 0;

int64_t TargetsOfThisProcessor() {
  int64_t targets = HWY_EMU128;
#if HWY_ARCH_X86
  if (!__builtin_cpu_supports("ssse3")) return targets;
  targets |= HWY_SSSE3;
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul") ||
      !__builtin_cpu_supports("aes")) {
    return targets;
  }
  targets |= HWY_SSE4;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2") ||
      !__builtin_cpu_supports("f16c")) {
    return targets;
  }
  targets |= HWY_AVX2;
  for (const bool supported :
       {bool(__builtin_cpu_supports("avx512f")), bool(__builtin_cpu_supports("avx512cd")),
        bool(__builtin_cpu_supports("avx512bw")), bool(__builtin_cpu_supports("avx512dq")),
        bool(__builtin_cpu_supports("avx512vl"))}) {
    if (!supported) return targets;
  }
  targets |= HWY_AVX3;
#endif
  return targets;
}

}  // namespace

int64_t SupportedTargets() {
  static const int64_t targets = TargetsOfThisProcessor();
  const int64_t enabled = targets & ~disabled_targets;
  return enabled != 0 ? enabled : HWY_STATIC_TARGET;
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

void DisableTargets(int64_t targets) {
  disabled_targets = targets & ~HWY_STATIC_TARGET;
  GetChosenTarget().DeInit();
}

}  // namespace hwy
