// Exact widening of the 16-bit floating-point formats that files hold.
#pragma once

#include <bit>
#include <cstdint>

namespace zero {

// The upper half of an fp32; NaN keeps its bits.
inline float FloatFromBF16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// IEEE binary16: 5 bits of exponent, 10 of fraction. Subnormals become normal, NaN keeps its
// fraction in the upper bits.
inline float FloatFromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  uint32_t fraction = bits & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (fraction << 13));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  }
  if (fraction == 0) return std::bit_cast<float>(sign);
  const uint32_t shift = static_cast<uint32_t>(std::countl_zero(fraction)) - 21;
  fraction = (fraction << shift) & 0x3FFu;  // the leading bit becomes the hidden one
  return std::bit_cast<float>(sign | ((113 - shift) << 23) | (fraction << 13));
}

}  // namespace zero
