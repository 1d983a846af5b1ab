// The formulas behind masters: rounding away, splitting, random bits.
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "kernels/random_bits_math.h"
#include "kernels/split_math.h"
#include "tests/catch.h"

namespace zero {
namespace {

TEST_CASE("ToBFloat16Away: ties go away from zero and all else to the nearest", "[kernels]") {
  int64_t wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7F80) == 0x7F80) continue;  // infinities and NaNs
    const uint32_t wide = bits << 16;
    if (ToBFloat16Away(FloatOf(wide)).bits != bits) ++wrong;
    if (ToBFloat16Away(FloatOf(wide + 0x7FFF)).bits != bits) ++wrong;
    if (ToBFloat16Away(FloatOf(wide + 0x8000)).bits != bits + 1) ++wrong;
    if (ToBFloat16Away(FloatOf(wide + 0x8001)).bits != bits + 1) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(ToBFloat16Away(std::numeric_limits<float>::infinity()).bits == 0x7F80);
  CHECK(ToBFloat16Away(FloatOf(0x7F800001)).bits == 0x7FC0);
  CHECK(ToBFloat16Away(FloatOf(0xFFFFFFFF)).bits == 0xFFFF);
}

TEST_CASE("SplitMath: the halves give the fp32 back and their upper one is it rounded",
          "[kernels]") {
  std::vector<uint32_t> all;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (uint32_t lower : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      all.push_back(upper << 16 | lower);
    }
  }
  int64_t wrong = 0;
  for (const uint32_t bits : all) {
    const float x = FloatOf(bits);
    const SplitFloat split = SplitMath(x);
    if (split.weight.bits != ToBFloat16Away(x).bits) ++wrong;
    const float joined = JoinMath(split);
    if (x == x ? BitsOf(joined) != bits : joined == joined) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("UpperHalf: with random bits exact values and infinities stay and NaNs stay NaNs",
          "[kernels]") {
  int64_t wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = FloatOf(bits << 16);
    for (uint32_t add : {0u, 1u, 0x8000u, 0xFFFFu}) {
      const uint32_t got = UpperHalf(x, add).bits;
      if (x == x ? got != bits : ToFloat(BFloat16{static_cast<uint16_t>(got)}) == x) ++wrong;
      if (x != x && (got & 0x7FFF) <= 0x7F80) ++wrong;
    }
  }
  CHECK(wrong == 0);
  CHECK((UpperHalf(FloatOf(0x7FFFFFFF), 0xFFFF).bits & 0x7FFF) > 0x7F80);
}

uint32_t RandomBitsOf(uint32_t step, uint32_t parameter, int64_t element) {
  const RandomKeys keys = RandomKeysOf(step, parameter, static_cast<uint32_t>(element >> 32));
  return RandomBitsMath(keys, static_cast<uint32_t>(element));
}

// Chi-squared of 256 bins less its mean 255, in its standard deviations sqrt(2 x 255).
double Unevenness(const std::vector<uint32_t>& values, int shift) {
  std::array<double, 256> bins{};
  for (const uint32_t value : values) ++bins[(value >> shift) & 0xFF];
  const double expected = static_cast<double>(values.size()) / 256;
  double sum = 0;
  for (const double count : bins) sum += (count - expected) * (count - expected) / expected;
  return (sum - 255) / std::sqrt(2 * 255.0);
}

TEST_CASE("RandomBitsMath: both bytes are uniform over elements and over steps and parameters",
          "[kernels]") {
  constexpr int64_t kCount = 1 << 16;
  const int along = GENERATE(0, 1, 2, 3);
  std::vector<uint32_t> values;
  for (int64_t i = 0; i < kCount; ++i) {
    const uint32_t u = static_cast<uint32_t>(i);
    values.push_back(along == 0   ? RandomBitsOf(1, 2, i)
                     : along == 1 ? RandomBitsOf(u, 2, 77)
                     : along == 2 ? RandomBitsOf(1, u, 77)
                                  : RandomBitsOf(1, 2, i << 32));
    CHECK(values.back() < 0x10000);
  }
  CHECK(std::abs(Unevenness(values, 0)) < 5);
  CHECK(std::abs(Unevenness(values, 8)) < 5);
}

TEST_CASE("RandomBitsMath: neighbours in element or step or parameter have nothing in common",
          "[kernels]") {
  // Were the bits of two neighbours equal, their difference would be uniform no longer.
  constexpr int64_t kCount = 1 << 16;
  const int along = GENERATE(0, 1, 2);
  std::vector<uint32_t> differences;
  for (int64_t i = 0; i < kCount; ++i) {
    const uint32_t here = RandomBitsOf(9, 3, i);
    const uint32_t there = along == 0   ? RandomBitsOf(9, 3, i + 1)
                           : along == 1 ? RandomBitsOf(10, 3, i)
                                        : RandomBitsOf(9, 4, i);
    differences.push_back((here - there) & 0xFFFF);
  }
  CHECK(std::abs(Unevenness(differences, 0)) < 5);
  CHECK(std::abs(Unevenness(differences, 8)) < 5);
}

TEST_CASE("MixBits: no two of many inputs give the same", "[kernels]") {
  std::set<uint32_t> seen;
  for (uint32_t i = 0; i < 1 << 18; ++i) seen.insert(MixBits(i << 7));
  CHECK(seen.size() == 1 << 18);
}

}  // namespace
}  // namespace zero
