#include "kernels/float16_math.h"

#include <cmath>
#include <limits>

#include "tests/catch.h"

namespace zero {
namespace {

// The value of positive bits by IEEE 754's definition; 2^16 for the bits of infinity.
double ValueOf(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10);
  const int fraction = static_cast<int>(bits & 0x3FF);
  return exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
}

TEST_CASE("Float16: every value is what the standard says and survives fp32 and back",
          "[kernels]") {
  int64_t wrong = 0;
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float wide = ToFloat(Float16{static_cast<uint16_t>(bits | sign)});
      const float expected = static_cast<float>(ValueOf(bits));
      if (BitsOf(wide) != BitsOf(sign != 0 ? -expected : expected)) ++wrong;
      if (ToFloat16(wide).bits != (bits | sign)) ++wrong;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("Float16: rounds to nearest, ties to even, beside every value", "[kernels]") {
  int64_t wrong = 0;
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    // fp32 holds every value between two neighbours of fp16 that is named here.
    const float low = static_cast<float>(ValueOf(bits));
    const float tie = static_cast<float>((ValueOf(bits) + ValueOf(bits + 1)) / 2);
    const uint32_t even = (bits & 1) != 0 ? bits + 1 : bits;
    for (const float sign : {1.0f, -1.0f}) {
      const auto rounded = [&](float x) { return ToFloat16(sign * x).bits; };
      const uint32_t minus = sign < 0 ? 0x8000 : 0;
      if (rounded(tie) != (even | minus)) ++wrong;
      if (rounded(FloatOf(BitsOf(tie) - 1)) != (bits | minus)) ++wrong;
      if (rounded(FloatOf(BitsOf(tie) + 1)) != ((bits + 1) | minus)) ++wrong;
      if (rounded(FloatOf(BitsOf(low) + 1)) != (bits | minus)) ++wrong;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("Float16: from 65520 on there is infinity, below it the largest value", "[kernels]") {
  CHECK(ToFloat16(65519.996f).bits == 0x7BFF);
  CHECK(ToFloat16(65520.0f).bits == 0x7C00);
  CHECK(ToFloat16(65536.0f).bits == 0x7C00);
  CHECK(ToFloat16(std::numeric_limits<float>::max()).bits == 0x7C00);
  CHECK(ToFloat16(std::numeric_limits<float>::lowest()).bits == 0xFC00);
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(ToFloat16(-inf).bits == 0xFC00);
  CHECK(ToFloat(Float16{0x7C00}) == inf);
  CHECK(ToFloat16(std::numeric_limits<float>::denorm_min()).bits == 0);
}

TEST_CASE("Float16: a NaN stays one with its sign and upper payload and comes back quiet",
          "[kernels]") {
  CHECK(ToFloat16(FloatOf(0x7F800001)).bits == 0x7E00);
  CHECK(ToFloat16(FloatOf(0xFF802000)).bits == 0xFE01);
  CHECK(ToFloat16(FloatOf(0x7FFFFFFF)).bits == 0x7FFF);
  int64_t wrong = 0;
  for (uint32_t bits = 0x7C01; bits < 0x8000; ++bits) {
    const float wide = ToFloat(Float16{static_cast<uint16_t>(bits)});
    if (wide == wide) ++wrong;
    if (ToFloat16(wide).bits != (bits | 0x200)) ++wrong;
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace zero
