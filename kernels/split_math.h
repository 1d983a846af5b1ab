// An fp32 in two halves: a bf16, which is the fp32 rounded, and 16 bits that the rounding lost.
#pragma once

#include <cstdint>

#include "kernels/bfloat16_math.h"
#include "kernels/portable.h"

namespace zero {

struct SplitFloat {
  BFloat16 weight;         // ToBFloat16Away of the whole
  uint16_t remainder = 0;  // its lower half; 0 for a NaN
};

ZERO_HOST_DEVICE SplitFloat SplitMath(float x) {
  SplitFloat split;
  split.weight = ToBFloat16Away(x);
  split.remainder = x == x ? static_cast<uint16_t>(BitsOf(x)) : uint16_t{0};
  return split;
}

// The inverse, exactly, but for a NaN, which stays one: rounding added 1 to the upper half where
// the lower one was at least 2^15.
ZERO_HOST_DEVICE float JoinMath(SplitFloat split) {
  const uint32_t carry = split.remainder >> 15;
  return FloatOf((static_cast<uint32_t>(split.weight.bits) - carry) << 16 | split.remainder);
}

}  // namespace zero
