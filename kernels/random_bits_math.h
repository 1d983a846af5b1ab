// Random bits of an element as a function of where it is and when: nothing is kept between steps,
// and every rank, device and SIMD target has the same. 32-bit operations that all vectors have.
#pragma once

#include <cstdint>

#include "kernels/portable.h"

namespace zero {

// Multipliers of MixBits and the fraction of the golden ratio.
inline constexpr uint32_t kMixFirst = 0x7FEB352Du;
inline constexpr uint32_t kMixSecond = 0x846CA68Bu;
inline constexpr uint32_t kGolden = 0x9E3779B9u;

// A bijection in which every bit of the input changes about half of those of the output.
ZERO_HOST_DEVICE uint32_t MixBits(uint32_t x) {
  x ^= x >> 16;
  x *= kMixFirst;
  x ^= x >> 15;
  x *= kMixSecond;
  x ^= x >> 16;
  return x;
}

// Of the 2^32 elements whose index has `upper` as its upper half.
struct RandomKeys {
  uint32_t first = 0;
  uint32_t second = 0;
};

ZERO_HOST_DEVICE RandomKeys RandomKeysOf(uint32_t step, uint32_t parameter, uint32_t upper) {
  RandomKeys keys;
  keys.first = MixBits(MixBits(MixBits(step + kGolden) + parameter) + upper);
  keys.second = MixBits(keys.first + kGolden);
  return keys;
}

// 16 bits, uniform over elements, steps and parameters. `lower`: the lower half of the index.
ZERO_HOST_DEVICE uint32_t RandomBitsMath(const RandomKeys& keys, uint32_t lower) {
  return MixBits(MixBits(lower ^ keys.first) + keys.second) >> 16;
}

}  // namespace zero
