// fp16 (IEEE binary16) from the bits of fp32: the same on every compiler, SIMD target and device.
#pragma once

#include <cstdint>

#include "kernels/bfloat16_math.h"
#include "kernels/portable.h"

namespace zero {

// The element behind DType::kF16: 1 bit of sign, 5 of exponent, 10 of fraction.
struct Float16 {
  uint16_t bits = 0;
};

// fp32 bits of limits of fp16, and the distance between the two exponent biases.
inline constexpr uint32_t kFloat16Overflow = 0x47800000u;  // 2^16: rounds to infinity at the latest
inline constexpr uint32_t kFloat16Normal = 0x38800000u;    // 2^-14, the smallest normal value
inline constexpr uint32_t kFloat16Bias = (127u - 15u) << 23;
// An fp32 with the smallest subnormal, 2^-24, as its last place: adding it rounds to subnormals.
inline constexpr uint32_t kFloat16Places = 0x3F000000u;

// Exact. Subnormals: the fraction beside an exponent of 2^-14, less 2^-14, which no bit is lost to.
ZERO_HOST_DEVICE float ToFloat(Float16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t shifted = static_cast<uint32_t>(x.bits & 0x7FFFu) << 13;
  const uint32_t exponent = shifted & 0x0F800000u;
  uint32_t bits = shifted + kFloat16Bias;
  if (exponent == 0x0F800000u) {  // inf, NaN
    bits += kFloat16Bias;
  } else if (exponent == 0) {
    bits = BitsOf(FloatOf(bits + 0x00800000u) - FloatOf(kFloat16Normal));
  }
  return FloatOf(bits | sign);
}

// To nearest, ties to even; from 65520 on to infinity. A NaN keeps its sign and upper payload and
// becomes quiet.
ZERO_HOST_DEVICE Float16 ToFloat16(float x) {
  const uint32_t bits = BitsOf(x);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  uint32_t rounded;
  if (magnitude > 0x7F800000u) {
    rounded = 0x7E00u | ((magnitude >> 13) & 0x3FFu);
  } else if (magnitude >= kFloat16Overflow) {
    rounded = 0x7C00u;
  } else if (magnitude < kFloat16Normal) {
    // One sum in fp32, rounded as every sum is.
    rounded = BitsOf(FloatOf(magnitude) + FloatOf(kFloat16Places)) - kFloat16Places;
  } else {
    rounded = (magnitude - kFloat16Bias + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  }
  Float16 result;
  result.bits = static_cast<uint16_t>(rounded | ((bits >> 16) & 0x8000u));
  return result;
}

ZERO_HOST_DEVICE void RoundTo(float x, Float16* out) { *out = ToFloat16(x); }

}  // namespace zero
