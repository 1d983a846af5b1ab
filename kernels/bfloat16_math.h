// bfloat16 by integer operations: the same bits on every compiler, SIMD target and device.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/portable.h"

namespace zero {

// The element behind DType::kBF16: the upper half of an fp32.
struct BFloat16 {
  uint16_t bits = 0;
};

ZERO_HOST_DEVICE uint32_t BitsOf(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

ZERO_HOST_DEVICE float FloatOf(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// True for inf and NaN: the exponent is all ones.
ZERO_HOST_DEVICE bool IsNonFinite(float x) { return (BitsOf(x) & 0x7F800000u) == 0x7F800000u; }

// Exact.
ZERO_HOST_DEVICE float ToFloat(float x) { return x; }
ZERO_HOST_DEVICE float ToFloat(BFloat16 x) { return FloatOf(static_cast<uint32_t>(x.bits) << 16); }

// The upper half of x's bits after `add`, below 2^16, was added to them: how every rounding to bf16
// ends. A NaN keeps its sign and upper payload and becomes quiet: rounding it like a number could
// carry it into the exponent and give an infinity.
ZERO_HOST_DEVICE BFloat16 UpperHalf(float x, uint32_t add) {
  const uint32_t bits = BitsOf(x);
  BFloat16 result;
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    result.bits = static_cast<uint16_t>((bits >> 16) | 0x40u);
  } else {
    result.bits = static_cast<uint16_t>((bits + add) >> 16);
  }
  return result;
}

// To nearest, ties to even.
ZERO_HOST_DEVICE BFloat16 ToBFloat16(float x) {
  return UpperHalf(x, 0x7FFFu + ((BitsOf(x) >> 16) & 1u));
}

// To nearest, ties away from zero.
ZERO_HOST_DEVICE BFloat16 ToBFloat16Away(float x) { return UpperHalf(x, 0x8000u); }

// Rounds to the type that `out` points to, for loops written once for all element types.
ZERO_HOST_DEVICE void RoundTo(float x, float* out) { *out = x; }
ZERO_HOST_DEVICE void RoundTo(float x, BFloat16* out) { *out = ToBFloat16(x); }

}  // namespace zero
