#include <algorithm>
#include <limits>

#include "tests/kernels/update_test_util.h"

namespace zero {
namespace {

TEST_CASE("Lion: every way to run gives the scalar formula's bits", "[kernels]") {
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    for (const UpdateTypes& types : AllUpdateTypes()) {
      for (int64_t n : {0, 64, 192, 2048, 2112}) {
        for (int64_t offset : {0, 1, 3}) {
          UpdateState state(types, n, offset);
          UpdateState expected = state;
          for (int step = 0; step < 2; ++step) {
            REQUIRE_OK(Lion(run.stream(), state.Lion(run)));
            expected.ScalarLion();
          }
          run.Finish();
          INFO(variant << " " << types.ToString() << " n " << n << " offset " << offset);
          CHECK(state.Difference(expected) == "");
        }
      }
    }
  });
}

TEST_CASE("Lion: nothing changes when the step is not applied", "[kernels]") {
  KernelRun run;
  UpdateState state({DType::kF32, Masters::kNone}, 2112, 3);
  state.gradient.Set(0, std::numeric_limits<float>::quiet_NaN());
  state.scalars.apply = 0;
  UpdateState before = state;
  CHECK_OK(Lion(run.stream(), state.Lion(run)));
  run.Finish();
  CHECK(state.SameBytes(before));
}

TEST_CASE("Lion: 100 steps stay near the paper's algorithm in double", "[kernels]") {
  constexpr int64_t kN = 2048;
  constexpr int kSteps = 100;
  constexpr double kRate = 1e-3;
  constexpr double kDecay = 0.1;
  UpdateState state({DType::kF32, Masters::kOwn}, kN, 0);
  state.scalars.divisor = 1;
  state.scalars.clip_coefficient = 1;
  GroupScalars row;
  row.learning_rate = static_cast<float>(kRate);
  row.keep = static_cast<float>(1 - kRate * kDecay);
  state.rows.assign(3, row);
  std::vector<double> p(kN), m(kN, 0.0);
  std::vector<int> near_zero(kN, 0);
  for (int64_t i = 0; i < kN; ++i) {
    state.moment1.Set(i, 0);
    p[i] = state.master.Get(i);
  }
  KernelRun run;
  double largest = 0;
  for (int t = 1; t <= kSteps; ++t) {
    const std::vector<float> gradients = RandomFloats(kN, 300 + t);
    for (int64_t i = 0; i < kN; ++i) {
      state.gradient.Set(i, gradients[i]);
      const double c = 0.9 * m[i] + (1 - 0.9) * gradients[i];
      // Its sign is not certain in fp32.
      if (std::abs(c) < 1e-6 * std::abs(m[i])) ++near_zero[i];
      p[i] = p[i] * (1 - kRate * kDecay) - kRate * (c > 0 ? 1 : c < 0 ? -1 : 0);
      m[i] = 0.99 * m[i] + (1 - 0.99) * gradients[i];
      largest = std::max(largest, std::abs(p[i]));
    }
    REQUIRE_OK(Lion(run.stream(), state.Lion(run)));
    run.Finish();
  }
  double error = 0;
  int64_t compared = 0;
  for (int64_t i = 0; i < kN; ++i) {
    if (near_zero[i] > 0) continue;
    ++compared;
    error = std::max(error, std::abs(state.master.Get(i) - p[i]));
  }
  // A step rounds p and its factor, and the rate once.
  const double bound = kSteps * std::ldexp(1.5 * largest + kRate, -23);
  UNSCOPED_INFO("error " << error << ", bound " << bound);
  CHECK(compared > kN * 9 / 10);
  CHECK(error <= bound);
  CHECK(error > 0);
}

TEST_CASE("Lion: a step by hand, and the sign of nothing is nothing", "[kernels]") {
  const float gradients[] = {4, -4, 0, -1};
  const float moments[] = {2, 2, 0, 1};
  // c = 0.5 m + 0.5 g = 3, -1, 0, 0;  m = 0.75 m + 0.25 g;  p = 2 x 0.5 - 0.25 sign(c)
  const float masters[] = {0.75f, 1.25f, 1, 1};
  const float next[] = {2.5f, 0.5f, 0, 0.5f};
  KernelRun run;
  UpdateState state({DType::kF16, Masters::kF16}, 64, 0);
  state.scalars.divisor = 1;
  state.scalars.clip_coefficient = 1;
  state.scalars.beta1 = 0.5f;
  state.scalars.one_minus_beta1 = 0.5f;
  GroupScalars row;
  row.learning_rate = 0.25f;
  row.keep = 0.5f;
  row.weight_decay = 100;  // not Lion's
  state.rows.assign(3, row);
  for (int64_t i = 0; i < 64; ++i) {
    state.gradient.Set(i, gradients[i % 4]);
    state.SetMaster(i, 2);
    state.moment1.Set(i, moments[i % 4]);
  }
  LionArguments a = state.Lion(run);
  a.beta2 = 0.75f;
  a.one_minus_beta2 = 0.25f;
  CHECK_OK(Lion(run.stream(), a));
  run.Finish();
  for (int64_t i = 0; i < 64; ++i) {
    CAPTURE(i);
    CHECK(state.Master(i) == masters[i % 4]);
    CHECK(state.weight.Get(i) == masters[i % 4]);
    CHECK(state.moment1.Get(i) == next[i % 4]);
  }
}

}  // namespace
}  // namespace zero
