// Loops over seeds that can be repeated for one: ZERO_TEST_SEED=17 runs seed 17 alone.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "absl/strings/numbers.h"
#include "tests/catch.h"

namespace zero::test {

// `count` seeds from `first`, or the one of the environment. A loop over them begins with
// CAPTURE_SEED, so that a failure says how to repeat it.
inline std::vector<uint64_t> Seeds(uint64_t first, uint64_t count) {
  const char* const one = std::getenv("ZERO_TEST_SEED");
  if (one != nullptr && *one != '\0') {
    uint64_t seed = 0;
    INFO("ZERO_TEST_SEED is '" << one << "'; it must be a whole number of at least 0");
    REQUIRE(absl::SimpleAtoi(one, &seed));
    return {seed};
  }
  std::vector<uint64_t> seeds;
  for (uint64_t i = 0; i < count; ++i) seeds.push_back(first + i);
  return seeds;
}

#define CAPTURE_SEED(seed) INFO("repeat with ZERO_TEST_SEED=" << (seed))

}  // namespace zero::test
