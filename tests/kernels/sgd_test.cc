#include <algorithm>
#include <limits>

#include "tests/kernels/update_test_util.h"

namespace zero {
namespace {

TEST_CASE("Sgd: every way to run gives the scalar formula's bits", "[kernels]") {
  const bool with_moment = GENERATE(true, false);
  const float momentum = with_moment ? 0.9f : 0.0f;
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    for (const UpdateTypes& types : AllUpdateTypes()) {
      for (int64_t n : {0, 64, 192, 2048, 2112}) {
        for (int64_t offset : {0, 1, 3}) {
          UpdateState state(types.gradient, types.has_weight, types.weight, n, offset);
          UpdateState expected = state;
          SgdArguments a = state.Sgd(run, momentum);
          if (!with_moment) a.moment1 = nullptr;
          for (int step = 0; step < 2; ++step) {
            REQUIRE_OK(Sgd(run.stream(), a));
            expected.ScalarSgd(momentum, with_moment);
          }
          run.Finish();
          INFO(variant << " gradient " << Name(types.gradient) << " weight " << types.has_weight
                       << Name(types.weight) << " n " << n << " offset " << offset);
          CHECK(state.Difference(expected) == "");
        }
      }
    }
  });
}

TEST_CASE("Sgd: nothing changes when the step is not applied", "[kernels]") {
  KernelRun run;
  UpdateState state(DType::kF32, true, DType::kBF16, 2112, 3);
  state.gradient.Set(0, std::numeric_limits<float>::quiet_NaN());
  state.scalars.apply = 0;
  UpdateState before = state;
  CHECK_OK(Sgd(run.stream(), state.Sgd(run, 0.9f)));
  run.Finish();
  CHECK(state.master.bytes() == before.master.bytes());
  CHECK(state.moment1.bytes() == before.moment1.bytes());
  CHECK(state.weight.bytes() == before.weight.bytes());
}

TEST_CASE("Sgd: 100 steps with momentum stay near the formula in double", "[kernels]") {
  constexpr int64_t kN = 2048;
  constexpr int kSteps = 100;
  constexpr double kRate = 1e-2;
  constexpr double kDecay = 0.05;
  constexpr double kMomentum = 0.9;
  UpdateState state(DType::kF32, false, DType::kBF16, kN, 0);
  state.scalars.divisor = 1;
  state.scalars.clip_coefficient = 1;
  GroupScalars row;
  row.learning_rate = static_cast<float>(kRate);
  row.weight_decay = static_cast<float>(kDecay);
  state.rows.assign(3, row);
  std::vector<double> p(kN), m(kN, 0.0);
  for (int64_t i = 0; i < kN; ++i) {
    state.moment1.Set(i, 0);
    p[i] = state.master.Get(i);
  }
  KernelRun run;
  double largest = 0;
  for (int t = 1; t <= kSteps; ++t) {
    const std::vector<float> gradients = RandomFloats(kN, 200 + t);
    for (int64_t i = 0; i < kN; ++i) {
      state.gradient.Set(i, gradients[i]);
      m[i] = kMomentum * m[i] + (gradients[i] + kDecay * p[i]);
      p[i] = p[i] - kRate * m[i];
      largest = std::max({largest, std::abs(p[i]), std::abs(m[i])});
    }
    REQUIRE_OK(Sgd(run.stream(), state.Sgd(run, static_cast<float>(kMomentum))));
    run.Finish();
  }
  double error = 0;
  for (int64_t i = 0; i < kN; ++i) error = std::max(error, std::abs(state.master.Get(i) - p[i]));
  // A step rounds p once and its update a few times; an error in m lives on for 1 / (1 - momentum)
  // steps.
  const double bound = kSteps * std::ldexp(largest * (0.5 + kRate * 4 / (1 - kMomentum)), -23);
  UNSCOPED_INFO("error " << error << " is " << error / kRate << " x rate, bound " << bound
                         << ", used " << error / bound);
  CHECK(error <= bound);
  CHECK(error > 0);
}

TEST_CASE("Sgd: three steps with momentum give the values worked out by hand", "[kernels]") {
  // Halves and quarters only: every step is exact.
  KernelRun run;
  UpdateState state(DType::kBF16, true, DType::kBF16, 64, 0);
  state.scalars.divisor = 2;
  state.scalars.clip_coefficient = 0.5f;
  GroupScalars row;
  row.learning_rate = 0.5f;
  row.weight_decay = 0.25f;
  state.rows.assign(3, row);
  for (int64_t i = 0; i < 64; ++i) {
    state.gradient.Set(i, 4);  // g = 4 / 2 x 0.5 = 1
    state.master.Set(i, 4);
    state.moment1.Set(i, 0);
  }
  const float masters[] = {3, 1.625f, 0.234375f};
  const float moments[] = {2, 2.75f, 2.78125f};
  for (int step = 0; step < 3; ++step) {
    CHECK_OK(Sgd(run.stream(), state.Sgd(run, 0.5f)));
    run.Finish();
    CHECK(state.master.Get(63) == masters[step]);
    CHECK(state.moment1.Get(63) == moments[step]);
    CHECK(state.weight.Get(63) == masters[step]);
  }
}

}  // namespace
}  // namespace zero
