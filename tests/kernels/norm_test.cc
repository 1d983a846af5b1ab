#include "kernels/norm_math.h"

#include <algorithm>
#include <limits>

#include "tests/kernels/kernel_test_util.h"

namespace zero {
namespace {

// Full fractions over so many binades that the order of a sum shows in double, in bf16 too. Those
// that fp16 would make an infinity are smaller.
std::vector<float> WideFloats(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(n);
  for (float& x : values) {
    const float fraction = std::ldexp(static_cast<float>(random() >> 8), -24) - 0.5f;
    x = std::ldexp(fraction, static_cast<int>(random() % 60) - 44);
  }
  return values;
}

// The tree of the header as plain loops, written apart from norm_math.h.
NormPartial ScalarNorm(const Elements& x) {
  NormPartial total;
  for (int64_t begin = 0; begin < x.size(); begin += 2048) {
    std::vector<double> lane(32, 0.0);
    for (int64_t i = begin; i < std::min(begin + 2048, x.size()); ++i) {
      const double value = x.Get(i);
      lane[(i - begin) % 32] += value * value;
      if (std::isfinite(x.Get(i))) continue;
      if (total.non_finite++ == 0) total.first_non_finite = i;
    }
    for (int l = 0; l < 16; ++l) lane[l] += lane[l + 16];
    for (int l = 0; l < 8; ++l) lane[l] += lane[l + 8];
    for (int l = 0; l < 4; ++l) lane[l] += lane[l + 4];
    total.sum_of_squares += (lane[0] + lane[2]) + (lane[1] + lane[3]);
  }
  return total;
}

NormPartial RunNorm(KernelRun& run, Elements& x) {
  std::vector<NormPartial> scratch(NormChunks(x.size()));
  NormPartial out;
  REQUIRE_OK(Norm(run.stream(), run.On(x), x.type(), x.size(), run.On(scratch), run.On(&out)));
  run.Finish();
  return out;
}

TEST_CASE("Norm: every way to run gives the bits of the scalar tree", "[kernels]") {
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    for (int64_t n : Sizes()) {
      if (n == 0) continue;
      for (int64_t offset : {0, 1, 3}) {
        Elements x(type, WideFloats(n, 21), offset);
        const NormPartial expected = ScalarNorm(x);
        const NormPartial got = RunNorm(run, x);
        INFO(variant << " n " << n << " offset " << offset);
        CHECK(got.sum_of_squares == expected.sum_of_squares);
        CHECK(got.non_finite == 0);
        CHECK(got.first_non_finite == INT64_MAX);
      }
    }
  });
}

TEST_CASE("Norm: adding in another order gives other bits", "[kernels]") {
  // Otherwise the case above could not fail.
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  int64_t different = 0;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    Elements x(type, WideFloats(2049, seed));
    double running = 0;
    for (int64_t i = 0; i < x.size(); ++i) running += double{x.Get(i)} * double{x.Get(i)};
    if (ScalarNorm(x).sum_of_squares != running) ++different;
  }
  CHECK(different > 0);
}

TEST_CASE("Norm: the formula for CUDA is the scalar tree", "[kernels]") {
  for (int64_t n : {1, 57, 2047, 2048}) {
    Elements x(DType::kF32, WideFloats(n, 22));
    const NormPartial chunk = NormChunkMath(x.floats(), n, 0);
    CHECK(AddChunksMath(&chunk, 1).sum_of_squares == ScalarNorm(x).sum_of_squares);
  }
}

TEST_CASE("Norm: counts planted infinities and NaNs and names the first", "[kernels]") {
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    for (int64_t first : {0, 31, 32, 2047, 2048, 5000, 99968, 100002}) {
      Elements x(type, WideFloats(100003, 23), 1);
      x.Set(first, first % 2 == 0 ? nan : -inf);
      for (int64_t i : {99990, 100001}) {
        if (i > first) x.Set(i, inf);
      }
      const NormPartial got = RunNorm(run, x);
      INFO(variant << " first " << first);
      CHECK(got.first_non_finite == first);
      CHECK(got.non_finite == ScalarNorm(x).non_finite);
      CHECK_FALSE(std::isfinite(got.sum_of_squares));
    }
  });
}

TEST_CASE("Norm: the largest and smallest fp32 values neither overflow nor vanish", "[kernels]") {
  KernelRun run;
  const float extreme =
      GENERATE(std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min());
  Elements x(DType::kF32, std::vector<float>(2048, extreme));
  const NormPartial got = RunNorm(run, x);
  CHECK(got.non_finite == 0);
  const double exact = 2048.0 * (double{extreme} * double{extreme});
  CHECK(std::abs(got.sum_of_squares / exact - 1) < 1e-14);
}

}  // namespace
}  // namespace zero
