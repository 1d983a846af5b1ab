#include "io/crc32c.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

namespace zero {
namespace {

static_assert(std::endian::native == std::endian::little, "words are taken as they lie in memory");

using Table = std::array<uint32_t, 256>;

constexpr uint32_t kPolynomial = 0x82F63B78;

// Row 0: what one byte makes of a crc of 0; row k: the same, followed by k zero bytes.
std::array<Table, 8> MakeByteTables() {
  std::array<Table, 8> tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

const std::array<Table, 8>& ByteTables() {
  static const std::array<Table, 8> tables = MakeByteTables();
  return tables;
}

uint64_t WordAt(const char* at) {
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

#if defined(__x86_64__)

// What `bytes` zero bytes make of a crc, split by the crc's bytes: the operation is linear.
class ZeroBytes {
 public:
  explicit ZeroBytes(size_t bytes) {
    const std::array<Table, 8>& tables = ByteTables();
    std::array<uint32_t, 32> of_bit = {};
    for (size_t bit = 0; bit < 32; ++bit) {
      uint32_t crc = uint32_t{1} << bit;
      for (size_t i = 0; i < bytes; ++i) crc = (crc >> 8) ^ tables[0][crc & 0xFF];
      of_bit[bit] = crc;
    }
    for (size_t k = 0; k < rows_.size(); ++k) {
      for (size_t byte = 0; byte < 256; ++byte) {
        for (size_t bit = 0; bit < 8; ++bit) {
          if ((byte >> bit & 1) != 0) rows_[k][byte] ^= of_bit[k * 8 + bit];
        }
      }
    }
  }

  uint32_t After(uint32_t crc) const {
    return rows_[0][crc & 0xFF] ^ rows_[1][crc >> 8 & 0xFF] ^ rows_[2][crc >> 16 & 0xFF] ^
           rows_[3][crc >> 24];
  }

 private:
  std::array<Table, 4> rows_ = {};
};

// The instruction takes three cycles, and one can begin in each: three parts of this length are
// summed side by side, and then put together.
constexpr size_t kPart = 4096;

__attribute__((target("sse4.2"))) uint32_t ByInstruction(uint32_t crc, const char* at,
                                                         size_t left) {
  static const ZeroBytes part(kPart);
  uint64_t a = ~crc;
  while (left >= 3 * kPart) {
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < kPart; i += 8) {
      a = __builtin_ia32_crc32di(a, WordAt(at + i));
      b = __builtin_ia32_crc32di(b, WordAt(at + kPart + i));
      c = __builtin_ia32_crc32di(c, WordAt(at + 2 * kPart + i));
    }
    a = part.After(static_cast<uint32_t>(a)) ^ b;
    a = part.After(static_cast<uint32_t>(a)) ^ c;
    at += 3 * kPart;
    left -= 3 * kPart;
  }
  for (; left >= 8; at += 8, left -= 8) a = __builtin_ia32_crc32di(a, WordAt(at));
  uint32_t rest = static_cast<uint32_t>(a);
  for (; left > 0; ++at, --left) {
    rest = __builtin_ia32_crc32qi(rest, static_cast<unsigned char>(*at));
  }
  return ~rest;
}

#endif

}  // namespace

uint32_t Crc32cByTable(uint32_t crc, absl::Span<const char> bytes) {
  const std::array<Table, 8>& tables = ByteTables();
  const char* at = bytes.data();
  size_t left = bytes.size();
  crc = ~crc;
  for (; left >= 8; at += 8, left -= 8) {
    const uint64_t word = WordAt(at) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= tables[7 - k][word >> (8 * k) & 0xFF];
  }
  for (; left > 0; ++at, --left) {
    crc = (crc >> 8) ^ tables[0][(crc ^ static_cast<unsigned char>(*at)) & 0xFF];
  }
  return ~crc;
}

uint32_t Crc32c(uint32_t crc, absl::Span<const char> bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ByInstruction(crc, bytes.data(), bytes.size());
#endif
  return Crc32cByTable(crc, bytes);
}

}  // namespace zero
