// Numbers of gradients: the same samples give the same loss, norm and update however they are
// split, only what is trained is counted, and sums keep what 16 bits would lose.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/bfloat16_math.h"
#include "tests/catch.h"
#include "tests/zero/given_pass.h"
#include "tests/zero/toy_trainer.h"
#include "zero/initializer.h"
#include "zero/schedules.h"

namespace zero::test {
namespace {

Config Sgd(int stage) {
  Config config;
  config.stage = stage;
  config.optimizer = OptimizerKind::kSgd;
  config.learning_rate = 1;
  return config;
}

// ---- A network whose loss and gradients are worked out by hand: y = v . tanh(W x) + c, loss
// (y - t)^2 / 2, mean over samples. Units "in" (W) and "out" (v, c).

constexpr int kInputs = 5;
constexpr int kHidden = 7;
constexpr int kSamples = 16;
constexpr int kSteps = 20;

struct Sample {
  float x[kInputs];
  float target;
};

std::vector<Sample> MakeSamples() {
  std::vector<Sample> samples(kSamples);
  for (int k = 0; k < kSamples; ++k) {
    FillNormal(3, "x", k * kInputs, 1, absl::MakeSpan(samples[k].x));
    samples[k].target = NormalAt(3, "target", k);
  }
  return samples;
}

Model NetworkModel() {
  Model model;
  model.units.resize(2);
  model.units[0].name = "in";
  model.units[0].parameters = {MakeParameter("in.weight", {kHidden, kInputs})};
  model.units[1].name = "out";
  model.units[1].parameters = {MakeParameter("out.weight", {kHidden}),
                               MakeParameter("out.bias", {1})};
  return model;
}

// What one sample adds, times `factor`; gradients are W, v, c. Returns its part of the loss.
double AddSample(const Sample& sample, const double* w, const double* v, double c, double factor,
                 double* dw, double* dv, double* dc) {
  double hidden[kHidden];
  double error = c - double{sample.target};
  for (int h = 0; h < kHidden; ++h) {
    double sum = 0;
    for (int i = 0; i < kInputs; ++i) sum += w[h * kInputs + i] * double{sample.x[i]};
    hidden[h] = std::tanh(sum);
    error += v[h] * hidden[h];
  }
  *dc += factor * error;
  for (int h = 0; h < kHidden; ++h) {
    dv[h] += factor * error * hidden[h];
    const double before = factor * error * v[h] * (1 - hidden[h] * hidden[h]);
    for (int i = 0; i < kInputs; ++i) dw[h * kInputs + i] += before * double{sample.x[i]};
  }
  return factor * error * error / 2;
}

constexpr int kWeights = kHidden * kInputs + kHidden + 1;

// How 16 samples are split: m in a micro-batch, g micro-batches, W ranks.
struct Split {
  int samples;
  int micro_batches;
  int ranks;
};

struct Course {
  std::vector<double> losses, norms;  // of each step
  std::vector<double> weights;        // at the end
};

double RateAt(int64_t count) { return count == 1 ? 0 : 1e-3; }

// All samples at once, and AdamW, in double.
Course ReferenceCourse() {
  const std::vector<Sample> samples = MakeSamples();
  std::vector<double> p, m(kWeights, 0), v(kWeights, 0);
  for (const Parameter& parameter :
       {NetworkModel().units[0].parameters[0], NetworkModel().units[1].parameters[0],
        NetworkModel().units[1].parameters[1]}) {
    std::vector<float> values(static_cast<size_t>(ElementCount(parameter)));
    (void)InitialValues()(parameter, 0, absl::MakeSpan(values));
    p.insert(p.end(), values.begin(), values.end());
  }
  Course course;
  for (int t = 1; t <= kSteps + 1; ++t) {
    std::vector<double> g(kWeights, 0);
    double* const dv = &g[kHidden * kInputs];
    double loss = 0;
    for (const Sample& sample : samples) {
      loss += AddSample(sample, p.data(), &p[kHidden * kInputs], p.back(), 1.0 / kSamples, g.data(),
                        dv, &g.back());
    }
    double squares = 0;
    for (int i = 0; i < kWeights; ++i) {
      squares += g[i] * g[i];
      m[i] = 0.9 * m[i] + 0.1 * g[i];
      v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
      const double root = std::sqrt(v[i] / (1 - std::pow(0.999, t)));
      p[i] -= RateAt(t) * m[i] / (1 - std::pow(0.9, t)) / (root + 1e-8);
    }
    course.losses.push_back(loss);
    course.norms.push_back(std::sqrt(squares));
  }
  course.weights = p;
  return course;
}

// What forward leaves for backward, on one rank's stream.
struct Activations {
  std::vector<double> w, g;
  double loss = 0;  // of this rank's samples
};

void WriteGradients(const Gradients& gradients, const std::vector<double>& g, size_t first,
                    const std::vector<int>& counts) {
  for (size_t p = 0; p < counts.size(); ++p) {
    auto* const data = static_cast<float*>(gradients.data[p]);
    for (int i = 0; i < counts[p]; ++i, ++first) {
      data[i] = (gradients.accumulate ? data[i] : 0) + static_cast<float>(g[first]);
    }
  }
}

absl::Status NetworkPass(Rank& rank, Pass pass, const Sample* samples, int count, Activations* a) {
  ShardedOptimizer& optimizer = *rank.optimizer;
  const Stream& stream = *rank.stream;
  ZERO_RETURN_IF_ERROR(optimizer.BeginPass(pass));
  ZERO_ASSIGN_OR_RETURN(const Weights in, optimizer.AcquireWeights(0, stream));
  ZERO_RETURN_IF_ERROR(stream.Enqueue("in", [in, a] {
    const auto* const w = static_cast<const float*>(in.data[0]);
    a->w.assign(w, w + kHidden * kInputs);
    a->g.assign(kWeights, 0);
    return absl::OkStatus();
  }));
  ZERO_RETURN_IF_ERROR(optimizer.ReleaseWeights(0, stream));
  ZERO_ASSIGN_OR_RETURN(const Weights out, optimizer.AcquireWeights(1, stream));
  ZERO_ASSIGN_OR_RETURN(const Gradients d_out, optimizer.AcquireGradients(1, stream));
  ZERO_RETURN_IF_ERROR(stream.Enqueue("out", [=] {
    const auto* const weight = static_cast<const float*>(out.data[0]);
    const std::vector<double> v(weight, weight + kHidden);
    const double c = double{*static_cast<const float*>(out.data[1])};
    double* const dv = &a->g[kHidden * kInputs];
    for (int k = 0; k < count; ++k) {  // the mean over the micro-batch
      a->loss += AddSample(samples[k], a->w.data(), v.data(), c, 1.0 / count, a->g.data(), dv,
                           &a->g.back());
    }
    WriteGradients(d_out, a->g, kHidden * kInputs, {kHidden, 1});
    return absl::OkStatus();
  }));
  ZERO_RETURN_IF_ERROR(optimizer.ReduceGradients(1, stream));
  ZERO_RETURN_IF_ERROR(optimizer.ReleaseWeights(1, stream));
  ZERO_ASSIGN_OR_RETURN(const Gradients d_in, optimizer.AcquireGradients(0, stream));
  ZERO_RETURN_IF_ERROR(stream.Enqueue("in", [=] {
    WriteGradients(d_in, a->g, 0, {kHidden * kInputs});
    return absl::OkStatus();
  }));
  return optimizer.ReduceGradients(0, stream);
}

absl::StatusOr<Course> TrainNetwork(const Split& split, int stage) {
  const std::vector<Sample> samples = MakeSamples();
  Config config;
  config.stage = stage;
  config.clip_norm = 1e9;
  config.schedule = RateAt;
  std::vector<Course> courses(split.ranks);
  std::vector<std::vector<double>> losses(split.ranks);
  ZERO_RETURN_IF_ERROR(OnRanks(split.ranks, config, NetworkModel(), [&](Rank& rank) {
    const int r = rank.group->rank();
    ZERO_RETURN_IF_ERROR(rank.optimizer->Write(State::kWeight, InitialValues()));
    for (int step = 0; step <= kSteps; ++step) {
      Activations activations;
      for (int micro = 0; micro < split.micro_batches; ++micro) {
        const Pass pass = micro + 1 == split.micro_batches ? Pass::kTrainLast : Pass::kTrain;
        const int first = (micro * split.ranks + r) * split.samples;
        ZERO_RETURN_IF_ERROR(NetworkPass(rank, pass, &samples[first], split.samples, &activations));
      }
      ZERO_ASSIGN_OR_RETURN(const StepResult result, EndStep(rank));
      courses[r].norms.push_back(result.gradient_norm);
      losses[r].push_back(activations.loss);
    }
    ZERO_ASSIGN_OR_RETURN(const auto weights, GatherAll(rank, State::kWeight));
    for (const auto& values : weights) {
      courses[r].weights.insert(courses[r].weights.end(), values.begin(), values.end());
    }
    return absl::OkStatus();
  }));
  for (int r = 1; r < split.ranks; ++r) {
    if (courses[r].norms == courses[0].norms && courses[r].weights == courses[0].weights) continue;
    return absl::InternalError("ranks differ");
  }
  for (int step = 0; step <= kSteps; ++step) {
    double sum = 0;
    for (const auto& of_rank : losses) sum += of_rank[step];
    courses[0].losses.push_back(sum / (split.ranks * split.micro_batches));
  }
  return courses[0];
}

TEST_CASE("Splits: 16 samples give one loss and norm and course however they are split",
          "[zero][numbers]") {
  const Course reference = ReferenceCourse();
  CHECK(reference.losses.back() < 0.95 * reference.losses.front());  // it learns
  for (const Split& split :
       {Split{16, 1, 1}, {4, 4, 1}, {1, 16, 1}, {4, 1, 4}, {2, 2, 4}, {1, 1, 16}}) {
    for (int stage = 0; stage < 4; ++stage) {
      INFO("micro-batch " << split.samples << " x " << split.micro_batches << " x " << split.ranks
                          << " ranks, stage " << stage);
      const absl::StatusOr<Course> course = TrainNetwork(split, stage);
      REQUIRE_OK(course.status());
      // The first step has rate 0: the second has the same weights.
      CHECK(course->norms[1] == course->norms[0]);
      CHECK(course->norms[0] == Approx(reference.norms[0]).epsilon(1e-6));
      CHECK(course->losses[0] == Approx(reference.losses[0]).epsilon(1e-6));
      double worst = 0;
      for (int i = 0; i < kWeights; ++i) {
        worst = std::max(worst, std::abs(course->weights[i] - reference.weights[i]));
      }
      CHECK(worst < 1e-6);
    }
  }
}

// ---- What the norm counts.

// Four trainable elements in two units, one of them tied; frozen ones in units of their own and of
// others.
Model FourElements(DType dtype) {
  Model model;
  model.units.resize(3);
  model.units[0].name = "embedding";
  model.units[0].resident = true;
  model.units[0].parameters = {MakeParameter("embedding.weight", {2, 1}, dtype)};
  model.units[0].parameters[0].aliases = {"head.weight"};
  model.units[1].name = "frozen";
  model.units[1].parameters = {MakeParameter("frozen.weight", {300}, dtype)};
  model.units[1].parameters[0].trainable = false;
  model.units[2].name = "layer";
  model.units[2].parameters = {MakeParameter("layer.table", {5, 1}, dtype),
                               MakeParameter("layer.weight", {1}, dtype),
                               MakeParameter("layer.bias", {1}, dtype)};
  model.units[2].parameters[0].trainable = false;
  return model;
}

TEST_CASE("Norm: gaps and frozen parameters and second names are not counted", "[zero][numbers]") {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int ranks : {1, 2, 3, 4, 8}) {
      for (int stage = 0; stage < 4; ++stage) {
        INFO(Name(dtype) << ", stage " << stage << ", " << ranks << " ranks");
        std::vector<std::vector<double>> norms(ranks);
        REQUIRE_OK(OnRanks(ranks, Sgd(stage), FourElements(dtype), [&](Rank& rank) {
          for (int step = 0; step < 2; ++step) {
            ZERO_ASSIGN_OR_RETURN(const StepResult result,
                                  RunStep(
                                      rank, [](const Parameter&, int64_t) { return 3.0f; }, 1e30f));
            norms[rank.group->rank()].push_back(result.gradient_norm);
          }
          return absl::OkStatus();
        }));
        CHECK(norms == std::vector<std::vector<double>>(ranks, {6, 6}));
      }
    }
  }
}

TEST_CASE("Clipping: every rank has the norm before it and the same coefficient",
          "[zero][numbers]") {
  for (const double limit : {1.0, 0.0}) {
    const double coefficient = limit > 0 ? 1 / (6 + 1e-6) : 1;
    const float update = 3.0f * static_cast<float>(coefficient);
    for (int ranks : {1, 3}) {
      for (int stage = 0; stage < 4; ++stage) {
        INFO("limit " << limit << ", stage " << stage << ", " << ranks << " ranks");
        Config config = Sgd(stage);
        config.clip_norm = limit;
        std::vector<StepResult> results(ranks);
        std::vector<std::vector<std::vector<float>>> weights(ranks);
        REQUIRE_OK(OnRanks(ranks, config, SimpleModel(2, 2), [&](Rank& rank) {
          const int r = rank.group->rank();
          // Ranks differ; their mean is 3.
          const float own = 3.0f + static_cast<float>(2 * r - (ranks - 1));
          ZERO_ASSIGN_OR_RETURN(results[r],
                                RunStep(rank, [own](const Parameter&, int64_t) { return own; }));
          ZERO_ASSIGN_OR_RETURN(weights[r], GatherAll(rank, State::kWeight));
          return absl::OkStatus();
        }));
        for (int r = 0; r < ranks; ++r) {
          CHECK(results[r].gradient_norm == 6);
          CHECK(results[r].clip_coefficient == coefficient);
          CHECK(weights[r] == std::vector<std::vector<float>>(2, {-update, -update}));
        }
      }
    }
  }
}

// ---- Sums over micro-batches.

TEST_CASE("Accumulation: 512 micro-batches in fp32 lose nothing that bf16 would",
          "[zero][numbers]") {
  const float small = ToFloat(ToBFloat16(0.001f));
  for (int micro_batches : {1, 512}) {
    for (int ranks : {1, 2}) {
      for (int stage = 0; stage < 4; ++stage) {
        for (DType stored : {DType::kF32, DType::kBF16}) {
          if (stored == DType::kBF16 && ranks > 1) continue;
          INFO(micro_batches << " micro-batches, stage " << stage << ", " << ranks << " ranks, "
                             << Name(stored));
          Config config = Sgd(stage);
          config.accumulation = stored;
          std::vector<std::vector<float>> sums;
          std::vector<std::vector<float>> masters;
          REQUIRE_OK(OnRanks(ranks, config, SimpleModel(1, 2, DType::kBF16), [&](Rank& rank) {
            for (int micro = 1; micro <= micro_batches; ++micro) {
              const Pass pass = micro == micro_batches ? Pass::kTrainLast : Pass::kTrain;
              ZERO_RETURN_IF_ERROR(RunPass(
                  rank, pass, [small](const Parameter&, int64_t i) { return i == 0 ? 1 : small; }));
            }
            ZERO_ASSIGN_OR_RETURN(const auto gradients, GatherAll(rank, State::kGradient));
            ZERO_RETURN_IF_ERROR(EndStep(rank).status());
            ZERO_ASSIGN_OR_RETURN(const auto mean, GatherAll(rank, State::kMaster));
            if (rank.group->rank() == 0) {
              sums = gradients;
              masters = mean;
            }
            return absl::OkStatus();
          }));
          const float n = static_cast<float>(micro_batches * ranks);
          if (stored == DType::kF32 || micro_batches == 1) {
            CHECK(sums[0] == std::vector<float>{n, n * small});
            CHECK(masters[0] == std::vector<float>{-1, -small});
          } else {
            CHECK(sums[0][0] == 256);  // 256 + 1 is 256 in bf16
          }
        }
      }
    }
  }
}

TEST_CASE("Accumulation: the same bf16 batch has one norm in every step and stage",
          "[zero][numbers]") {
  const Model model = MakeModel("mixed", DType::kBF16);
  const auto value = [](int rank, size_t i) {
    return static_cast<float>((i * 7 + static_cast<size_t>(rank)) % 11) - 5;
  };
  for (DType stored : {DType::kF32, DType::kBF16}) {
    for (int ranks : {1, 2}) {
      // A resident unit is used twice, and both micro-batches are the same.
      double squares = 0;
      for (const Unit& unit : model.units) {
        for (const Parameter& parameter : unit.parameters) {
          if (!parameter.trainable) continue;
          for (int64_t i = 0; i < ElementCount(parameter); ++i) {
            double mean = 0;
            for (int r = 0; r < ranks; ++r) mean += double{value(r, i)} / ranks;
            squares += std::pow(mean * (unit.resident ? 2 : 1), 2);
          }
        }
      }
      for (int stage = 0; stage < 4; ++stage) {
        INFO("stage " << stage << ", " << ranks << " ranks, stored " << Name(stored));
        ToyRun run;
        run.config.stage = stage;
        run.config.groups = {{}, {}};
        run.config.learning_rate = 0;
        run.config.accumulation = stored;
        run.config.poison_slots = true;
        run.model = model;
        run.ranks = ranks;
        run.micro_batches = 2;
        run.steps = 10;
        run.exact_gradients = true;
        run.spoil = [&](int rank, int, std::vector<float>& gradient) {
          for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = value(rank, i);
        };
        const Outcome outcome = RunToy(run);
        REQUIRE_OK(outcome.status);
        CHECK(outcome.steps[0].gradient_norm == Approx(std::sqrt(squares)).epsilon(1e-14));
        for (const StepResult& step : outcome.steps) {
          CHECK(step.gradient_norm == outcome.steps[0].gradient_norm);
        }
      }
    }
  }
}

// The loss of `tokens` tokens is summed, not averaged, and its gradient is `sum`.
struct Batch {
  double tokens;
  float sum;
};

TEST_CASE("Loss weights: tokens count alike in whatever micro-batch or rank they are",
          "[zero][numbers]") {
  const Batch many{100, 100 * 1.0f};
  const Batch few{4, 4 * 3.0f};
  // By rank, then micro-batch. The last has a rank without a token.
  const std::vector<std::vector<std::vector<Batch>>> cases = {
      {{many, few}},
      {{many}, {few}},
      {{many, few}, {few, many}},
      {{{60, 60}, {4, 12}}, {{40, 40}, {0, 0}}, {{0, 0}, {0, 0}}},
  };
  for (const auto& batches : cases) {
    const int ranks = static_cast<int>(batches.size());
    for (int stage = 0; stage < 4; ++stage) {
      for (const bool weighted : {true, false}) {
        if (!weighted && batches.back().back().tokens == 0) continue;
        INFO("stage " << stage << ", " << ranks << " ranks, " << batches[0].size()
                      << " micro-batches" << (weighted ? ", weighted" : ""));
        std::vector<std::vector<std::vector<float>>> weights(ranks);
        std::vector<double> divisors(ranks);
        REQUIRE_OK(OnRanks(ranks, Sgd(stage), SimpleModel(1, 3), [&](Rank& rank) {
          const int r = rank.group->rank();
          double tokens = 0;
          for (size_t micro = 0; micro < batches[r].size(); ++micro) {
            const Pass pass = micro + 1 == batches[r].size() ? Pass::kTrainLast : Pass::kTrain;
            const Batch& batch = batches[r][micro];
            tokens += batch.tokens;
            const float gradient =
                weighted ? batch.sum : batch.sum / static_cast<float>(batch.tokens);
            ZERO_RETURN_IF_ERROR(
                RunPass(rank, pass, [gradient](const Parameter&, int64_t) { return gradient; }));
          }
          ZERO_ASSIGN_OR_RETURN(const StepResult result, EndStep(rank, weighted ? tokens : 0));
          divisors[r] = result.loss_weight;
          ZERO_ASSIGN_OR_RETURN(weights[r], GatherAll(rank, State::kWeight));
          return absl::OkStatus();
        }));
        const float mean = weighted ? 112.0f / 104.0f : 2.0f;  // 1.076923, and the mean of means
        CHECK(weights ==
              std::vector<std::vector<std::vector<float>>>(ranks, {std::vector<float>(3, -mean)}));
        const double passes = static_cast<double>(batches.size() * batches[0].size());
        const double copies = batches.size() == 2 && batches[0].size() == 2 ? 2 : 1;
        CHECK(divisors == std::vector<double>(ranks, weighted ? 104 * copies : passes));
      }
    }
  }
}

// ---- Steps that are skipped.

TEST_CASE("Skips: warm-up begins when the first step is applied", "[zero][scale]") {
  WarmupLr warmup;
  warmup.warmup_min_lr = 0.25;
  warmup.warmup_max_lr = 1.5;
  warmup.warmup_num_steps = 10;
  warmup.warmup_type = WarmUpType::kLinear;
  const auto schedule = MakeSchedule(warmup);
  REQUIRE_OK(schedule.status());
  for (int stage = 0; stage < 4; ++stage) {
    INFO("stage " << stage);
    ToyRun run;
    run.config.stage = stage;
    run.config.groups = {{}, {}};
    run.config.schedule = *schedule;
    run.config.loss_scale.kind = LossScaling::kDynamic;
    run.config.loss_scale.scale = 64;
    run.config.loss_scale.hysteresis = 1;
    run.model = MakeModel("mixed", DType::kF16);
    run.ranks = 2;
    run.scaled = true;
    run.exact_gradients = true;
    run.steps = 15;
    int overflows = 3;
    run.spoil = [&](int rank, int step, std::vector<float>& gradient) {
      for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i % 7) - 2;
      if (step < overflows && rank == 1) gradient[0] = std::numeric_limits<float>::infinity();
    };
    const Outcome outcome = RunToy(run);
    REQUIRE_OK(outcome.status);
    for (int step = 0; step < 15; ++step) {
      INFO("step " << step);
      const StepResult& result = outcome.steps[step];
      const int applied = std::max(step - 2, 0);
      CHECK(result.step == step + 1);
      CHECK(result.applied == (step >= 3));
      CHECK(result.applied_steps == applied);
      CHECK(result.skipped_steps == std::min(step + 1, 3));
      CHECK(result.loss_scale == 64 >> std::min(step, 3));
      // An applied step has the rate of the index before it.
      const int index = std::max(applied - 1, 0);
      CHECK(result.learning_rate == Approx(0.25 + 0.125 * std::min(index, 10)).epsilon(1e-15));
    }
    overflows = 0;
    run.steps = 12;
    const Outcome clean = RunToy(run);
    REQUIRE_OK(clean.status);
    CHECK(clean.weights == outcome.weights);
    CHECK(clean.masters == outcome.masters);
    CHECK(clean.moment1 == outcome.moment1);
    CHECK(clean.moment2 == outcome.moment2);
  }
}

TEST_CASE("Skips: bf16 that turns NaN for good stops with the weights of the last good step",
          "[zero][scale]") {
  constexpr int kGood = 4;
  constexpr int kLimit = 20;
  Model model = SimpleModel(3, 5, DType::kBF16);
  for (int ranks : {1, 2}) {
    for (int stage = 0; stage < 4; ++stage) {
      INFO("stage " << stage << ", " << ranks << " ranks");
      Config config = Sgd(stage);
      config.learning_rate = 0.5;
      config.max_consecutive_skips = kLimit;
      config.check_gradients = true;
      const int bad_rank = ranks - 1;
      std::vector<std::vector<StepResult>> results(ranks);
      std::vector<absl::Status> ends(ranks);
      std::vector<std::vector<std::vector<float>>> weights(ranks);
      REQUIRE_OK(OnRanks(ranks, config, model, [&](Rank& rank) {
        const int r = rank.group->rank();
        for (int step = 1; step <= kGood + kLimit; ++step) {
          const bool bad = r == bad_rank && step > kGood;
          const auto result = RunStep(rank, [bad](const Parameter& parameter, int64_t i) {
            const bool here = bad && parameter.name == "u1.w" && i == 3;
            return here ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
          });
          ends[r] = result.status();
          if (!result.ok()) break;
          results[r].push_back(*result);
        }
        ZERO_ASSIGN_OR_RETURN(weights[r], GatherAll(rank, State::kWeight));
        return absl::OkStatus();
      }));
      for (int r = 0; r < ranks; ++r) {
        REQUIRE(results[r].size() == kGood + kLimit - 1);
        for (int i = 0; i < kGood + kLimit - 1; ++i) {
          const StepResult& result = results[r][i];
          CHECK(result.applied == (i < kGood));
          CHECK(result.skipped_steps == std::max(i + 1 - kGood, 0));
          CHECK(result.consecutive_skips == result.skipped_steps);
          CHECK(result.first_non_finite == (i < kGood ? "" : "u1.w"));
          CHECK(result.producer == (i < kGood ? -1 : bad_rank));
        }
        CHECK(absl::IsOutOfRange(ends[r]));
        CHECK_THAT(std::string(ends[r].message()),
                   ContainsSubstring("step 24: 20 steps in a row were skipped") &&
                       ContainsSubstring("the first in 'u1.w', owned by rank 0") &&
                       ContainsSubstring("rank " + std::to_string(bad_rank) +
                                         " wrote the first, in 'u1.w'") &&
                       ContainsSubstring("those of applied step 4"));
        // What would be saved now is what the last good step left.
        CHECK(weights[r] == std::vector<std::vector<float>>(3, std::vector<float>(5, -2)));
      }
    }
  }
}

}  // namespace
}  // namespace zero::test
