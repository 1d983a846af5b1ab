#include "examples/train/sampler.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/catch.h"

namespace zero::programs {
namespace {

TEST_CASE("Sampler: temperature 0 takes the largest, the lower token first") {
  train::Sampler sampler(0, 0, 1);
  CHECK(sampler.Draw(std::vector<float>{1, 3, 2, 3}) == 1);
}

TEST_CASE("Sampler: tokens come as often as the softmax says") {
  train::Sampler sampler(2, 0, 7);
  const std::vector<float> logits = {0, 2 * std::log(3.0f),
                                     -std::numeric_limits<float>::infinity()};
  int counts[3] = {};
  for (int i = 0; i < 4000; ++i) ++counts[sampler.Draw(logits)];
  CHECK(counts[0] == Approx(1000).margin(120));  // four standard deviations
  CHECK(counts[2] == 0);
}

TEST_CASE("Sampler: only the top_k largest are drawn, and a seed fixes the sequence") {
  const std::vector<float> logits = {0, 5, 4.9f, 1};
  train::Sampler sampler(100, 2, 3), again(100, 2, 3);
  for (int i = 0; i < 100; ++i) {
    const int32_t token = sampler.Draw(logits);
    CHECK((token == 1 || token == 2));
    CHECK(again.Draw(logits) == token);
  }
}

}  // namespace
}  // namespace zero::programs
