#include "io/crc32c.h"

#include <random>
#include <string>

#include "tests/catch.h"

namespace zero {
namespace {

absl::Span<const char> Bytes(const std::string& text) { return {text.data(), text.size()}; }

std::string RandomBytes(size_t count) {
  std::mt19937 random(7);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// The definition, a bit at a time.
uint32_t ByBits(absl::Span<const char> bytes) {
  uint32_t crc = ~uint32_t{0};
  for (char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
  }
  return ~crc;
}

TEST_CASE("Crc32c: known bytes give their known sums") {
  for (const auto crc : {Crc32c, Crc32cByTable}) {
    CHECK(crc(0, {}) == 0);
    CHECK(crc(0, Bytes("123456789")) == 0xE3069283);
    CHECK(crc(0, Bytes(std::string(32, '\0'))) == 0x8A9136AA);
    CHECK(crc(0, Bytes(std::string(32, '\xFF'))) == 0x62A8AB43);
  }
}

TEST_CASE("Crc32c: instruction and table and definition agree at every length and alignment") {
  // Across the lengths at which three parts are summed side by side.
  const std::string bytes = RandomBytes(40'000);
  int wrong = 0;
  for (size_t length : {0, 1, 7, 8, 9, 63, 4095, 4096, 12'287, 12'288, 12'289, 24'576, 36'871}) {
    for (size_t first = 0; first < 9; ++first) {
      const auto part = Bytes(bytes).subspan(first, length);
      const uint32_t wanted = ByBits(part);
      wrong += Crc32c(0, part) != wanted;
      wrong += Crc32cByTable(0, part) != wanted;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("Crc32c: the sum of parts one after the other is that of the whole") {
  const std::string bytes = RandomBytes(30'000);
  const uint32_t whole = Crc32c(0, Bytes(bytes));
  for (size_t cut : {0, 1, 8, 4097, 12'288, 29'999, 30'000}) {
    CAPTURE(cut);
    const auto first = Bytes(bytes).subspan(0, cut);
    const auto rest = Bytes(bytes).subspan(cut);
    CHECK(Crc32c(Crc32c(0, first), rest) == whole);
    CHECK(Crc32cByTable(Crc32cByTable(0, first), rest) == whole);
  }
}

}  // namespace
}  // namespace zero
