#include <algorithm>
#include <limits>

#include "tests/kernels/update_test_util.h"

namespace zero {
namespace {

TEST_CASE("Adam: every way to run gives the scalar formula's bits", "[kernels]") {
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    for (const UpdateTypes& types : AllUpdateTypes()) {
      for (int64_t n : {0, 64, 192, 2048, 2112}) {
        for (int64_t offset : {0, 1, 3}) {
          UpdateState state(types, n, offset);
          UpdateState expected = state;
          for (int step = 0; step < 2; ++step) {
            REQUIRE_OK(Adam(run.stream(), state.Adam(run)));
            expected.ScalarAdam();
          }
          run.Finish();
          INFO(variant << " " << types.ToString() << " n " << n << " offset " << offset);
          CHECK(state.Difference(expected) == "");
        }
      }
    }
  });
}

TEST_CASE("Adam: nothing changes when the step is not applied", "[kernels]") {
  KernelRun run;
  for (const UpdateTypes& types : AllUpdateTypes()) {
    UpdateState state(types, 2112, 1);
    state.gradient.Set(70, std::numeric_limits<float>::infinity());
    state.scalars.apply = 0;
    UpdateState before = state;
    CHECK_OK(Adam(run.stream(), state.Adam(run)));
    run.Finish();
    INFO(types.ToString());
    CHECK(state.SameBytes(before));
  }
}

TEST_CASE("Adam: reads the scalars when it runs, not when it is enqueued", "[kernels]") {
  KernelRun run;
  UpdateState state({DType::kF32, Masters::kOwn}, 64, 0);
  UpdateState expected = state;
  expected.ScalarAdam();
  StepScalars decided = state.scalars;
  state.scalars.apply = 0;
  const AdamArguments a = state.Adam(run);
  // A copy to the device in the stream's order, as a decision is.
  CHECK_OK(run.device().Copy(run.stream(), run.On(&state.scalars), &decided, sizeof(decided)));
  CHECK_OK(Adam(run.stream(), a));
  run.Finish();
  CHECK(state.Difference(expected) == "");
}

TEST_CASE("Adam: the weight may lie in the gradient's memory", "[kernels]") {
  KernelRun run;
  UpdateState state({DType::kBF16, Masters::kBF16}, 2112, 0);
  UpdateState expected = state;
  expected.ScalarAdam();
  AdamArguments a = state.Adam(run);
  a.weights.weight = run.On(state.gradient);
  CHECK_OK(Adam(run.stream(), a));
  run.Finish();
  CHECK(state.gradient.Difference(expected.weight) == "");
}

// Algorithm 2 of arXiv 1711.05101 in double, with the schedule multiplier taken as the rate and
// the decoupled decay multiplied by it.
struct PaperAdam {
  double rate, decay, coupled, beta1, beta2, epsilon;
  double p, m = 0, v = 0;
  int t = 0;
  void Step(double g) {
    ++t;
    g = g + coupled * p;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * (g * g);
    const double m_hat = m / (1 - std::pow(beta1, t));
    const double v_hat = v / (1 - std::pow(beta2, t));
    p = p - rate * (m_hat / (std::sqrt(v_hat) + epsilon)) - rate * decay * p;
  }
};

// What the host computes for step t, in double and rounded once.
void SetStep(double rate, double decay, int t, UpdateState* state) {
  state->scalars = StepScalars();
  state->scalars.apply = 1;
  state->scalars.beta1 = 0.9f;
  state->scalars.one_minus_beta1 = static_cast<float>(1 - 0.9);
  state->scalars.sqrt_bias_correction2 = static_cast<float>(std::sqrt(1 - std::pow(0.999, t)));
  GroupScalars row;
  row.learning_rate = static_cast<float>(rate);
  row.step_size = static_cast<float>(rate / (1 - std::pow(0.9, t)));
  row.keep = static_cast<float>(1 - rate * decay);
  state->rows.assign(3, row);
}

TEST_CASE("Adam: 100 steps stay near the paper's algorithm in double", "[kernels]") {
  constexpr int64_t kN = 2048;
  constexpr int kSteps = 100;
  const double rate = GENERATE(1e-2, 1e-4);
  // AdamW, and Adam with the decay in the gradient.
  const double decay = GENERATE(0.1, 0.0);
  const double coupled = decay > 0 ? 0.0 : 0.1;
  UpdateState state({DType::kF32, Masters::kOwn}, kN, 0);
  std::vector<PaperAdam> paper;
  for (int64_t i = 0; i < kN; ++i) {
    state.moment1.Set(i, 0);
    state.moment2.Set(i, 0);
    paper.push_back({rate, decay, coupled, 0.9, 0.999, 1e-8, state.master.Get(i)});
  }
  KernelRun run;
  double largest = 0;
  for (int t = 1; t <= kSteps; ++t) {
    SetStep(rate, decay, t, &state);
    for (GroupScalars& row : state.rows) row.weight_decay = static_cast<float>(coupled);
    const std::vector<float> gradients = RandomFloats(kN, 100 + t);
    for (int64_t i = 0; i < kN; ++i) {
      state.gradient.Set(i, gradients[i]);
      paper[i].Step(gradients[i]);
    }
    REQUIRE_OK(Adam(run.stream(), state.Adam(run)));
    run.Finish();
    for (int64_t i = 0; i < kN; ++i) largest = std::max(largest, std::abs(paper[i].p));
  }
  double error = 0;
  double moment_error = 0;  // relative
  for (int64_t i = 0; i < kN; ++i) {
    error = std::max(error, std::abs(state.master.Get(i) - paper[i].p));
    moment_error = std::max(moment_error, std::abs(state.moment2.Get(i) / paper[i].v - 1));
  }
  // A step rounds p three times (the decay's factor, the product, the difference), each by at most
  // half a unit of 2^-23 |p|, and an update of at most about 3 x rate by some units of 2^-23.
  const double bound = kSteps * std::ldexp(1.5 * largest + 8 * rate, -23);
  // A step moves v by two roundings and that of beta2, half a unit each and partly forgotten.
  const double moment_bound = kSteps * std::ldexp(1.0, -23);
  UNSCOPED_INFO("rate " << rate << ": error of p " << error << " is " << error / rate
                        << " x rate, used " << error / bound << " of " << bound);
  UNSCOPED_INFO("relative error of v " << moment_error << ", used " << moment_error / moment_bound
                                       << " of " << moment_bound);
  CHECK(error <= bound);
  CHECK(moment_error <= moment_bound);
  CHECK(error > 0);
  // Tight enough to tell 1 - 0.999 from 1 - 0.999f, which is 4.7e-5 off.
  CHECK(moment_bound < 4e-5);
}

TEST_CASE("Adam: three steps from 1 give the golden values to fp32 accuracy", "[kernels]") {
  constexpr double kRate = 0.01;
  constexpr double kDecay = 0.1;
  const float gradients[] = {0.1f, -0.2f, 0.3f};
  const double golden[] = {0.9890000009999999, 0.9916720360378488, 0.9872479533577363};
  KernelRun run;
  UpdateState state({DType::kF32, Masters::kOwn}, 64, 0);
  for (int64_t i = 0; i < 64; ++i) {
    state.master.Set(i, 1);
    state.moment1.Set(i, 0);
    state.moment2.Set(i, 0);
  }
  PaperAdam paper{kRate, kDecay, 0, 0.9, 0.999, 1e-8, 1};
  for (int t = 1; t <= 3; ++t) {
    SetStep(kRate, kDecay, t, &state);
    for (int64_t i = 0; i < 64; ++i) state.gradient.Set(i, gradients[t - 1]);
    REQUIRE_OK(Adam(run.stream(), state.Adam(run)));
    run.Finish();
    paper.Step(t == 1 ? 0.1 : t == 2 ? -0.2 : 0.3);
    CAPTURE(t);
    CHECK(std::abs(paper.p - golden[t - 1]) < 1e-15);
    CHECK(std::abs(state.master.Get(0) - golden[t - 1]) < 2e-7);
    CHECK(state.master.Bits(63) == state.master.Bits(0));
  }
}

}  // namespace
}  // namespace zero
