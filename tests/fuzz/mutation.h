// Changed copies of texts, the same ones for the same seed.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

class Mutation {
 public:
  Mutation(std::vector<std::string> seeds, uint64_t seed);

  // One of the seeds after one to eight changes: bytes flipped, set, removed, doubled, words of
  // JSON put in, numbers, lists and strings replaced, the end cut off, a part of another seed.
  std::string Next();

 private:
  size_t Below(size_t limit) { return limit == 0 ? 0 : static_cast<size_t>(random_() % limit); }
  void Change(std::string& text);
  // Where a number is, chosen by chance, and its digits; none: 0 digits.
  std::pair<size_t, size_t> FindNumber(const std::string& text);
  void ReplaceNumber(std::string& text);
  // The text between two characters, chosen by chance; the start of the text where there is none.
  std::pair<size_t, size_t> FindBetween(const std::string& text, char open, char close);
  void ReplaceList(std::string& text);
  void ReplaceString(std::string& text);

  const std::vector<std::string> seeds_;
  std::mt19937_64 random_;
};
