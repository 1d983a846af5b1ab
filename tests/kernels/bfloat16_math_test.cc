#include "kernels/bfloat16_math.h"

#include <limits>

#include "tests/catch.h"

namespace zero {
namespace {

bool IsNaNBits(uint32_t bits) { return (bits & 0x7FFF) > 0x7F80; }

TEST_CASE("BFloat16: every value survives fp32 and back, and a NaN comes back quiet", "[kernels]") {
  int64_t wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float wide = ToFloat(BFloat16{static_cast<uint16_t>(bits)});
    const uint32_t expected = IsNaNBits(bits) ? bits | 0x40 : bits;
    if (ToBFloat16(wide).bits != expected) ++wrong;
    if (IsNaNBits(bits) != (wide != wide)) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("BFloat16: rounds to nearest, ties to even, beside every value", "[kernels]") {
  int64_t wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7F80) == 0x7F80) continue;  // infinities and NaNs
    const uint32_t even = (bits & 1) != 0 ? bits + 1 : bits;
    const uint32_t wide = bits << 16;
    if (ToBFloat16(FloatOf(wide + 1)).bits != bits) ++wrong;
    if (ToBFloat16(FloatOf(wide + 0x7FFF)).bits != bits) ++wrong;
    if (ToBFloat16(FloatOf(wide + 0x8000)).bits != even) ++wrong;
    if (ToBFloat16(FloatOf(wide + 0x8001)).bits != bits + 1) ++wrong;
    if (ToBFloat16(FloatOf(wide + 0xFFFF)).bits != bits + 1) ++wrong;
  }
  CHECK(wrong == 0);
  // Past the largest finite value comes infinity.
  CHECK(ToBFloat16(std::numeric_limits<float>::max()).bits == 0x7F80);
  CHECK(ToBFloat16(std::numeric_limits<float>::denorm_min()).bits == 0);
}

TEST_CASE("BFloat16: a NaN whose payload lies in the lower half stays a NaN", "[kernels]") {
  CHECK(ToBFloat16(FloatOf(0x7F800001)).bits == 0x7FC0);
  CHECK(ToBFloat16(FloatOf(0xFF80FFFF)).bits == 0xFFC0);
  CHECK(ToBFloat16(FloatOf(0x7FFFFFFF)).bits == 0x7FFF);
}

TEST_CASE("IsNonFinite: true for infinities and NaNs, false for the largest value", "[kernels]") {
  CHECK(IsNonFinite(std::numeric_limits<float>::infinity()));
  CHECK(IsNonFinite(-std::numeric_limits<float>::infinity()));
  CHECK(IsNonFinite(FloatOf(0x7F800001)));
  CHECK_FALSE(IsNonFinite(std::numeric_limits<float>::max()));
  CHECK_FALSE(IsNonFinite(std::numeric_limits<float>::lowest()));
  CHECK_FALSE(IsNonFinite(0.0f));
}

}  // namespace
}  // namespace zero
