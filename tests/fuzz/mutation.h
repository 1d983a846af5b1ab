// Changed copies of texts, the same ones for the same seed.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

class Mutation {
 public:
  Mutation(std::vector<std::string> seeds, uint64_t seed);

  // One of the seeds after one to eight changes: bytes flipped, set, removed, doubled, words of
  // JSON put in, numbers replaced, the end cut off, a part of another seed.
  std::string Next();

 private:
  size_t Below(size_t limit) { return limit == 0 ? 0 : static_cast<size_t>(random_() % limit); }
  void Change(std::string& text);
  void ReplaceNumber(std::string& text);

  const std::vector<std::string> seeds_;
  std::mt19937_64 random_;
};
