#include "io/float16.h"

#include <bit>
#include <cmath>

#include "tests/catch.h"

namespace zero {
namespace {

// The value of an IEEE binary16 from its definition.
double ValueOfF16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST_CASE("Float16: every fp16 value widens to the same number, sign of zero included") {
  int wrong = 0;
  for (int bits = 0; bits < 65536; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    if ((bits & 0x7C00) == 0x7C00) continue;
    const float wide = FloatFromF16(half);
    wrong += static_cast<double>(wide) != ValueOfF16(half) ||
             std::signbit(wide) != ((bits & 0x8000) != 0);
  }
  CHECK(wrong == 0);
}

TEST_CASE("Float16: fp16 infinities and NaNs keep sign and fraction") {
  CHECK(FloatFromF16(0x7C00) == INFINITY);
  CHECK(FloatFromF16(0xFC00) == -INFINITY);
  int wrong = 0;
  for (int bits = 0x7C01; bits < 0x8000; ++bits) {
    const uint32_t wide = std::bit_cast<uint32_t>(FloatFromF16(static_cast<uint16_t>(bits)));
    wrong += wide != (0x7F800000u | (static_cast<uint32_t>(bits & 1023) << 13));
  }
  CHECK(wrong == 0);
}

TEST_CASE("Float16: every bf16 is the upper half of its fp32, NaNs included") {
  int wrong = 0;
  for (int bits = 0; bits < 65536; ++bits) {
    const float wide = FloatFromBF16(static_cast<uint16_t>(bits));
    wrong += std::bit_cast<uint32_t>(wide) != static_cast<uint32_t>(bits) << 16;
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace zero
