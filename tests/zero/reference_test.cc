// The optimizer against a plain one: vectors, no layout, no slices, no slots.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/adam_math.h"
#include "kernels/bfloat16_math.h"
#include "tests/catch.h"
#include "tests/zero/toy_trainer.h"

namespace zero::test {
namespace {

float Rounded(float value, DType type) {
  return type == DType::kF32 ? value : ToFloat(ToBFloat16(value));
}

struct Parameters {
  std::vector<float> weight, master, moment1, moment2;
};

// Trains `run` (one micro-batch, AdamW) for its steps, taking clip coefficients from `outcome`, and
// compares norms with a sum in double and everything else bit for bit.
void CompareWithReference(const ToyRun& run, const Outcome& outcome) {
  std::map<std::string, Parameters> state;
  for (const Unit& unit : run.model.units) {
    for (const Parameter& parameter : unit.parameters) {
      Parameters& p = state[parameter.name];
      const size_t n = static_cast<size_t>(ElementCount(parameter));
      p.master.resize(n);
      REQUIRE_OK(InitialValues()(parameter, 0, absl::MakeSpan(p.master)));
      for (float value : p.master) p.weight.push_back(Rounded(value, parameter.dtype));
      p.moment1.assign(n, 0);
      p.moment2.assign(n, 0);
    }
  }
  AdamArguments adam;
  adam.beta2 = static_cast<float>(run.config.beta2);
  adam.one_minus_beta2 = static_cast<float>(1 - run.config.beta2);
  adam.epsilon = static_cast<float>(run.config.epsilon);
  for (int step = 0; step < run.steps; ++step) {
    StepScalars scalars;
    scalars.divisor = static_cast<float>(run.ranks);
    scalars.clip_coefficient = static_cast<float>(outcome.steps[step].clip_coefficient);
    scalars.one_minus_beta1 = static_cast<float>(1 - run.config.beta1);
    scalars.sqrt_bias_correction2 =
        static_cast<float>(std::sqrt(1 - std::pow(run.config.beta2, step + 1)));
    double sum_of_squares = 0;
    for (int u = 0; u < static_cast<int>(run.model.units.size()); ++u) {
      const Unit& unit = run.model.units[u];
      for (int p = 0; p < static_cast<int>(unit.parameters.size()); ++p) {
        const Parameter& parameter = unit.parameters[p];
        if (!parameter.trainable) continue;
        Parameters& values = state[parameter.name];
        const bool zero = (u == run.passed_over_unit && step == 1) ||
                          (u == run.unwritten_unit && p == run.unwritten_parameter);
        const ParameterGroup& group = run.config.groups[parameter.group];
        const double rate = run.config.learning_rate * group.learning_rate_factor;
        GroupScalars row;
        row.step_size = static_cast<float>(rate / (1 - std::pow(run.config.beta1, step + 1)));
        row.keep = static_cast<float>(1 - rate * group.weight_decay);
        const size_t n = values.master.size();
        std::vector<float> sum(n, 0.0f);
        for (int rank = 0; rank < run.ranks && !zero; ++rank) {
          std::vector<float> gradient =
              ToyGradient(run, parameter, rank, step, 0, values.weight, unit.resident ? 2 : 1);
          for (size_t i = 0; i < n; ++i) sum[i] = rank == 0 ? gradient[i] : sum[i] + gradient[i];
        }
        const bool store16 =
            run.config.accumulation != DType::kF32 && parameter.dtype != DType::kF32;
        for (size_t i = 0; i < n; ++i) {
          const float stored = store16 ? Rounded(sum[i], DType::kBF16) : sum[i];
          sum_of_squares += static_cast<double>(stored) * stored;
          AdamMath(adam, scalars, row, stored, &values.master[i], &values.moment1[i],
                   &values.moment2[i]);
          values.weight[i] = Rounded(values.master[i], parameter.dtype);
        }
      }
    }
    CHECK(outcome.steps[step].gradient_norm ==
          Approx(std::sqrt(sum_of_squares) / run.ranks).epsilon(1e-12));
  }
  for (const auto& [name, values] : state) {
    INFO(name);
    CHECK(outcome.weights.at(name) == values.weight);
    if (outcome.moment1.count(name) == 0) continue;  // frozen
    CHECK(outcome.masters.at(name) == values.master);
    CHECK(outcome.moment1.at(name) == values.moment1);
    CHECK(outcome.moment2.at(name) == values.moment2);
  }
}

}  // namespace

TEST_CASE("Stages: weights, masters and moments are those of a plain optimizer, bit for bit",
          "[zero]") {
  for (const std::string& model : ModelNames()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const DType accumulation : {DType::kF32, DType::kBF16}) {
        for (const int stage : {0, 1, 2, 3}) {
          ToyRun run;
          run.model = MakeModel(model, dtype);
          run.ranks = 3;
          run.config.stage = stage;
          run.config.accumulation = accumulation;
          run.config.groups = {{1, 0.1}, {0.5, 0}};
          run.config.clip_norm = 2;
          run.config.poison_slots = true;
          run.config.reduce_bucket_size = 1000;
          run.unwritten_unit = model == "odd" ? 1 : -1;
          run.unwritten_parameter = 1;
          run.passed_over_unit = model == "odd" ? 3 : model == "mixed" ? 1 : -1;
          INFO(model << ", " << Name(dtype) << ", stored " << Name(accumulation) << ", stage "
                     << stage);
          const Outcome outcome = RunToy(run);
          REQUIRE_OK(outcome.status);
          CompareWithReference(run, outcome);
        }
      }
    }
  }
}

}  // namespace zero::test
