// A target without libFuzzer: a fixed number of changed seeds, the same ones in every run.
#include "tests/catch.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutation.h"

namespace {

void Try(const std::string& input) {
  // A copy of the exact size, so that a read past its end is one past the end of an allocation.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

TEST_CASE("Fuzz: every seed is accepted") {
  for (const std::string& seed : FuzzSeeds()) {
    const int64_t before = fuzz_counts.accepted;
    Try(seed);
    INFO(seed);
    CHECK(fuzz_counts.accepted == before + 1);
  }
}

TEST_CASE("Fuzz: 20000 changed seeds are read or refused and no more") {
  fuzz_counts = {};
  Mutation mutation(FuzzSeeds(), 1);
  for (int i = 0; i < 20'000; ++i) Try(mutation.Next());
  // Neither is rare enough for the other to be all that is tried.
  CHECK(fuzz_counts.accepted > 200);
  CHECK(fuzz_counts.refused > 8'000);
}

TEST_CASE("Fuzz: every cut of a seed is read or refused and no more") {
  for (const std::string& seed : FuzzSeeds()) {
    for (size_t length = 0; length <= seed.size(); ++length) Try(seed.substr(0, length));
  }
  CHECK(fuzz_counts.refused > 0);
}

}  // namespace
