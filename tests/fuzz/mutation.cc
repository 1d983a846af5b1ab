#include "tests/fuzz/mutation.h"

#include <algorithm>
#include <array>

namespace {

constexpr std::array kWords = {"{",       "}",       "[",    "]",   ",",    ":",       "\"",
                               "\\",      "null",    "true", "NaN", "-1",   "1e9",     "0.5",
                               "\\ud800", "\\u0000", "/",    "..",  "[[[[", "{\"a\":", "{}",
                               "[]",      "\"\"",    "  \n", "/*",  "#",    "\xFF",    "\xC3\xA9"};

constexpr std::array kNumbers = {"0",
                                 "1",
                                 "-1",
                                 "7",
                                 "65",
                                 "4294967296",
                                 "2147483648",
                                 "9223372036854775807",
                                 "9223372036854775808",
                                 "18446744073709551615",
                                 "18446744073709551616",
                                 "1e400",
                                 "1.0",
                                 "1e2",
                                 "00",
                                 "-0",
                                 "1E-400"};

}  // namespace

Mutation::Mutation(std::vector<std::string> seeds, uint64_t seed)
    : seeds_(std::move(seeds)), random_(seed) {}

std::string Mutation::Next() {
  std::string text = seeds_[Below(seeds_.size())];
  for (size_t changes = 1 + Below(8); changes > 0; --changes) Change(text);
  return text;
}

void Mutation::Change(std::string& text) {
  const size_t at = Below(text.size() + 1);
  const size_t length = Below(std::min<size_t>(text.size() - at, 24) + 1);
  switch (Below(9)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << Below(8)));
      break;
    case 1:
      if (at < text.size()) text[at] = static_cast<char>(random_());
      break;
    case 2:
      text.erase(at, length);
      break;
    case 3:
      text.insert(Below(text.size() + 1), text.substr(at, length));
      break;
    case 4:
      text.insert(at, kWords[Below(kWords.size())]);
      break;
    case 5:
    case 6:
      ReplaceNumber(text);
      break;
    case 7: {
      const std::string& other = seeds_[Below(seeds_.size())];
      text.replace(at, length, other.substr(Below(other.size() + 1), Below(64)));
      break;
    }
    default:
      // Rarely: what is cut off has nothing left to change.
      if (Below(4) == 0) text.resize(at);
  }
}

void Mutation::ReplaceNumber(std::string& text) {
  constexpr char kDigits[] = "0123456789";
  size_t begin = text.find_first_of(kDigits, Below(text.size() + 1));
  if (begin == std::string::npos) begin = text.find_first_of(kDigits);
  if (begin == std::string::npos) return;
  const size_t end = std::min(text.find_first_not_of(kDigits, begin), text.size());
  text.replace(begin, end - begin, kNumbers[Below(kNumbers.size())]);
}
