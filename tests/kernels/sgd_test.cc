#include <algorithm>
#include <limits>

#include "tests/kernels/update_test_util.h"

namespace zero {
namespace {

TEST_CASE("Sgd: every way to run gives the scalar formula's bits", "[kernels]") {
  struct Momentum {
    bool moment, nesterov;
  };
  const Momentum momentum =
      GENERATE(Momentum{true, false}, Momentum{true, true}, Momentum{false, false});
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    for (const UpdateTypes& types : AllUpdateTypes()) {
      for (int64_t n : {0, 64, 192, 2048, 2112}) {
        for (int64_t offset : {0, 1, 3}) {
          UpdateState state(types, n, offset);
          UpdateState expected = state;
          SgdArguments a = state.Sgd(run, momentum.nesterov);
          if (!momentum.moment) a.moment1 = nullptr;
          for (int step = 0; step < 2; ++step) {
            REQUIRE_OK(Sgd(run.stream(), a));
            expected.ScalarSgd(momentum.moment, momentum.nesterov);
          }
          run.Finish();
          INFO(variant << " " << types.ToString() << " n " << n << " offset " << offset);
          CHECK(state.Difference(expected) == "");
        }
      }
    }
  });
}

TEST_CASE("Sgd: nothing changes when the step is not applied", "[kernels]") {
  KernelRun run;
  UpdateState state({DType::kF32, Masters::kSplit}, 2112, 3);
  state.gradient.Set(0, std::numeric_limits<float>::quiet_NaN());
  state.scalars.apply = 0;
  UpdateState before = state;
  CHECK_OK(Sgd(run.stream(), state.Sgd(run)));
  run.Finish();
  CHECK(state.SameBytes(before));
}

TEST_CASE("Sgd: 100 steps with momentum stay near the formula in double", "[kernels]") {
  constexpr int64_t kN = 2048;
  constexpr int kSteps = 100;
  constexpr double kRate = 1e-2;
  constexpr double kDecay = 0.05;
  constexpr double kMomentum = 0.9;
  const bool nesterov = GENERATE(false, true);
  UpdateState state({DType::kF32, Masters::kOwn}, kN, 0);
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
      const double g = gradients[i] + kDecay * p[i];
      m[i] = kMomentum * m[i] + g;
      p[i] = p[i] - kRate * (nesterov ? g + kMomentum * m[i] : m[i]);
      largest = std::max({largest, std::abs(p[i]), std::abs(m[i])});
    }
    REQUIRE_OK(Sgd(run.stream(), state.Sgd(run, nesterov)));
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
  UpdateState state({DType::kBF16, Masters::kBF16}, 64, 0);
  state.scalars.beta1 = 0.5f;
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
    CHECK_OK(Sgd(run.stream(), state.Sgd(run)));
    run.Finish();
    CHECK(state.master.Get(63) == masters[step]);
    CHECK(state.moment1.Get(63) == moments[step]);
    CHECK(state.weight.Get(63) == masters[step]);
  }
}

TEST_CASE("Sgd: a step of Nesterov's momentum gives the values worked out by hand", "[kernels]") {
  KernelRun run;
  UpdateState state({DType::kBF16, Masters::kSplit}, 64, 0);
  state.scalars.divisor = 1;
  state.scalars.clip_coefficient = 1;
  state.scalars.beta1 = 0.5f;
  GroupScalars row;
  row.learning_rate = 0.25f;
  row.weight_decay = 0.5f;
  state.rows.assign(3, row);
  for (int64_t i = 0; i < 64; ++i) {
    state.gradient.Set(i, 1);
    state.SetMaster(i, 2);
    state.moment1.Set(i, 8);
  }
  // g = 1 + 0.5 x 2 = 2; m = 0.5 x 8 + 2 = 6; p = 2 - 0.25 x (2 + 0.5 x 6)
  CHECK_OK(Sgd(run.stream(), state.Sgd(run, /*nesterov=*/true)));
  run.Finish();
  CHECK(state.moment1.Get(63) == 6);
  CHECK(state.Master(63) == 0.75f);
}

}  // namespace
}  // namespace zero
