// Loss scaling, skipped steps and the rules that stop a run, through the verbs.
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/catch.h"
#include "tests/zero/rank_fixture.h"
#include "tests/zero/toy_trainer.h"

namespace zero::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

LossScale Dynamic(double scale, int64_t window, int64_t hysteresis) {
  LossScale rule;
  rule.kind = LossScaling::kDynamic;
  rule.scale = scale;
  rule.window = window;
  rule.hysteresis = hysteresis;
  return rule;
}

ToyRun HalfRun(int stage, int ranks) {
  ToyRun run;
  run.config.stage = stage;
  run.config.groups = {{}, {}};
  run.config.clip_norm = 1;
  run.model = MakeModel("mixed", DType::kF16);
  run.ranks = ranks;
  run.scaled = true;
  run.exact_gradients = true;
  return run;
}

bool SameStates(const Outcome& a, const Outcome& b) {
  return a.weights == b.weights && a.masters == b.masters && a.moment1 == b.moment1 &&
         a.moment2 == b.moment2;
}

TEST_CASE("Loss scale: steps on which it doubles use the same gradient as the others",
          "[zero][scale]") {
  for (int ranks : {1, 2, 4}) {
    for (int stage = 0; stage < 4; ++stage) {
      INFO("stage " << stage << ", " << ranks << " ranks");
      ToyRun run = HalfRun(stage, ranks);
      run.steps = 9;
      const Outcome fixed = RunToy(run);
      REQUIRE_OK(fixed.status);
      run.config.loss_scale = Dynamic(2, 2, 1);
      const Outcome moving = RunToy(run);
      REQUIRE_OK(moving.status);
      CHECK(FirstDifference(moving, fixed) == "");
      std::vector<double> scales;
      for (const StepResult& step : moving.steps) scales.push_back(step.loss_scale);
      CHECK(scales == std::vector<double>{2, 2, 2, 4, 4, 8, 8, 16, 16});
      CHECK(moving.steps.back().next_loss_scale == 32);
    }
  }
}

TEST_CASE("Loss scale: an overflow on any rank and unit skips on all and changes nothing",
          "[zero][scale]") {
  for (int ranks : {1, 2, 4}) {
    for (int stage = 0; stage < 4; ++stage) {
      ToyRun run = HalfRun(stage, ranks);
      run.config.loss_scale = Dynamic(8, 1000, 1);
      run.steps = 1;
      const Outcome before = RunToy(run);
      REQUIRE_OK(before.status);
      run.steps = 2;
      run.overflow_step = 1;
      for (run.overflow_rank = 0; run.overflow_rank < ranks; ++run.overflow_rank) {
        for (int unit : {0, 1, 3}) {
          run.overflow_unit = unit;
          INFO("stage " << stage << ", rank " << run.overflow_rank << " of " << ranks << ", unit "
                        << unit);
          const Outcome after = RunToy(run);
          REQUIRE_OK(after.status);
          const StepResult& skipped = after.steps[1];
          CHECK_FALSE(skipped.applied);
          CHECK(skipped.applied_steps == 1);
          CHECK(skipped.skipped_steps == 1);
          CHECK(skipped.loss_scale == 8);
          CHECK(skipped.next_loss_scale == 4);
          CHECK(skipped.non_finite == 1);
          CHECK(skipped.first_non_finite == run.model.units[unit].parameters[0].name);
          CHECK(skipped.owner >= 0);
          CHECK(skipped.owner < ranks);
          CHECK(SameStates(after, before));
        }
      }
    }
  }
}

TEST_CASE("Loss scale: ranks that own nothing skip with the others", "[zero][scale]") {
  for (int stage = 0; stage < 4; ++stage) {
    ToyRun run = HalfRun(stage, 4);
    run.model = MakeModel("tiny", DType::kF16);
    run.config.loss_scale = Dynamic(2, 1000, 1);
    run.overflow_step = 1;
    run.overflow_rank = 2;
    run.overflow_unit = 1;
    const Outcome outcome = RunToy(run);
    REQUIRE_OK(outcome.status);
    CHECK(outcome.steps[1].next_loss_scale == 1);
    CHECK(outcome.steps[2].applied_steps == 2);
    CHECK(outcome.steps[2].skipped_steps == 1);
  }
}

Config FloatConfig(int stage) {
  Config config;
  config.stage = stage;
  config.optimizer = OptimizerKind::kSgd;
  config.learning_rate = 1;
  return config;
}

TEST_CASE("Loss scale: at its minimum the run stops and says where the overflow is",
          "[zero][scale]") {
  LocalWorld world(1);
  Config config = FloatConfig(3);
  config.loss_scale = Dynamic(16, 1000, 1);
  auto rank = Rank::Create(config, SimpleModel(2, 3), world.group(0));
  REQUIRE_OK(rank.status());
  const auto step = [&]() -> absl::StatusOr<StepResult> {
    const absl::Status passed = rank->Pass(
        Pass::kTrainLast, [](int unit, int64_t i) { return unit + i > 2 ? kInf : 1.0f; });
    if (!passed.ok()) return passed;
    auto result = rank->optimizer->Step();
    if (!result.ok()) return result.status();
    return result->Get();
  };
  for (double next : {8.0, 4.0, 2.0, 1.0}) {
    const auto result = step();
    REQUIRE_OK(result.status());
    CHECK(result->next_loss_scale == next);
    CHECK_FALSE(result->applied);
  }
  const absl::Status stopped = step().status();
  CHECK(absl::IsOutOfRange(stopped));
  CHECK_THAT(std::string(stopped.message()),
             ContainsSubstring("step 5: the loss scale is at its minimum 1") &&
                 ContainsSubstring("1 elements of the gradient are inf or NaN") &&
                 ContainsSubstring("the first in 'u1.w', owned by rank 0") &&
                 ContainsSubstring("bf16"));
  CHECK(absl::IsOutOfRange(step().status()));  // enqueued, and does nothing
  CHECK(absl::IsOutOfRange(step().status()));
  CHECK(*rank->optimizer->loss_scale() == 1);
  // What was trained so far can still be read.
  std::vector<float> weight(3);
  CHECK_OK(rank->optimizer->Gather(State::kWeight, "u1.w", absl::MakeSpan(weight)));
  CHECK(weight == std::vector<float>{0, 0, 0});
}

TEST_CASE("Skips: the limit of skips in a row stops the run in the same call on every rank",
          "[zero][scale][thread]") {
  constexpr int kRanks = 3;
  LocalWorld world(kRanks, absl::Seconds(60));
  std::vector<int> calls(kRanks, 0);
  std::vector<std::string> errors(kRanks);
  const absl::Status run = RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
    Config config = FloatConfig(group->size() - 1);
    config.max_consecutive_skips = 3;
    auto rank = Rank::Create(config, SimpleModel(1, 3), group);
    if (!rank.ok()) return rank.status();
    for (int step = 0; step < 20; ++step) {
      // One that is followed by a clean step first.
      const float value = group->rank() == 1 && (step == 1 || step >= 3) ? kInf : 1.0f;
      const absl::Status passed =
          rank->Pass(Pass::kTrainLast, [value](int, int64_t) { return value; });
      if (!passed.ok()) return passed;
      auto result = rank->optimizer->Step();
      if (!result.ok()) {
        errors[group->rank()] = std::string(result.status().message());
        return absl::OkStatus();
      }
      ++calls[group->rank()];
      // Rank 2 looks at every result, the others leave them.
      if (group->rank() == 2) (void)result->Get();
    }
    return absl::InternalError("the run was not stopped");
  });
  REQUIRE_OK(run);
  for (int r = 0; r < kRanks; ++r) {
    CHECK(calls[r] == 7);  // steps 4 to 6 are skipped, and one more is on its way
    CHECK_THAT(errors[r], ContainsSubstring("step 6: 3 steps in a row were skipped"));
  }
}

TEST_CASE("Skips: check_gradients names the rank that wrote the first inf or NaN",
          "[zero][scale]") {
  for (const bool check : {false, true}) {
    for (const DType accumulation : {DType::kF32, DType::kF16}) {
      for (int stage = 0; stage < 4; ++stage) {
        INFO("stage " << stage << (check ? ", checked" : ""));
        ToyRun run = HalfRun(stage, 3);
        run.config.check_gradients = check;
        run.config.accumulation = accumulation;
        run.micro_batches = 2;
        run.overflow_step = 1;
        run.overflow_rank = 2;
        run.overflow_unit = 0;
        const Outcome outcome = RunToy(run);
        REQUIRE_OK(outcome.status);
        CHECK(outcome.steps[1].first_non_finite == run.model.units[0].parameters[0].name);
        CHECK(outcome.steps[1].producer == (check ? 2 : -1));
        CHECK(outcome.steps[0].producer == -1);
        CHECK(outcome.steps[2].producer == -1);
        CHECK(outcome.steps[2].applied);
        for (int c = 0; c < kMemoryCategories; ++c) {
          CHECK(outcome.memory[c].peak == outcome.plan.bytes[c]);
        }
      }
    }
  }
}

TEST_CASE("Loss scale: a trainer whose first unit is frozen reads the scale of its own step",
          "[zero][scale][thread]") {
  for (int stage = 0; stage < 4; ++stage) {
    LocalWorld world(1);
    Config config = FloatConfig(stage);
    config.loss_scale.kind = LossScaling::kGradScaler;
    config.loss_scale.scale = 1;
    config.loss_scale.window = 1;
    Model model = SimpleModel(2, 3);
    model.units[0].parameters[0].trainable = false;
    auto rank = Rank::Create(config, model, world.group(0));
    REQUIRE_OK(rank.status());
    std::vector<float> read(6, 0.0f);
    std::vector<Pending<StepResult>> results;
    for (size_t step = 0; step < read.size(); ++step) {
      REQUIRE_OK(rank->optimizer->BeginPass(Pass::kTrainLast));
      REQUIRE_OK(rank->optimizer->AcquireWeights(0, *rank->stream).status());
      const float* const scale = rank->optimizer->loss_scale();
      float* const to = &read[step];
      REQUIRE_OK(rank->stream->Enqueue("loss", [scale, to] {
        *to = *scale;
        return absl::OkStatus();
      }));
      REQUIRE_OK(rank->optimizer->ReleaseWeights(0, *rank->stream));
      auto result = rank->optimizer->Step();
      REQUIRE_OK(result.status());
      results.push_back(*std::move(result));
    }
    for (size_t step = 0; step < read.size(); ++step) {
      const auto result = results[step].Get();
      REQUIRE_OK(result.status());
      CHECK(result->loss_scale == read[step]);
    }
  }
}

TEST_CASE("Create: a rank that fails tells the others", "[zero][errors][thread]") {
  for (const bool memory : {false, true}) {
    LocalWorld world(2, absl::Seconds(60));
    std::vector<absl::Status> first(2);
    const absl::Time begin = absl::Now();
    (void)RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
      Config config = FloatConfig(3);
      HostDevice::Options options;
      if (group->rank() == 1 && !memory) config.stage = 7;
      if (group->rank() == 1 && memory) options.capacity = 200'000;
      auto rank = Rank::Create(config, SimpleModel(2, 100'000), group, options);
      first[group->rank()] = rank.status();
      if (rank.ok()) {
        first[group->rank()] = rank->Pass(Pass::kTrainLast, [](int, int64_t) { return 1.0f; });
        if (first[group->rank()].ok()) first[group->rank()] = rank->optimizer->Finish();
      }
      return absl::OkStatus();
    });
    CHECK(absl::Now() - begin < absl::Seconds(30));
    CHECK_FALSE(first[0].ok());
    CHECK_THAT(std::string(first[0].message()), ContainsSubstring("rank 1: Create: "));
    CHECK_FALSE(first[1].ok());
  }
}

TEST_CASE("Step: a schedule that ends stops every rank in the same call", "[zero][step][thread]") {
  LocalWorld world(2, absl::Seconds(60));
  std::vector<int> calls(2, 0);
  std::vector<std::string> errors(2);
  REQUIRE_OK(RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
    Config config = FloatConfig(2);
    config.schedule = [](int64_t count) {
      return count <= 2 ? 0.5 : std::numeric_limits<double>::quiet_NaN();
    };
    auto rank = Rank::Create(config, SimpleModel(1, 3), group);
    if (!rank.ok()) return rank.status();
    for (int step = 0; step < 20; ++step) {
      const float value = step == 1 ? kInf : 1.0f;  // skipped: takes no row
      const absl::Status passed =
          rank->Pass(Pass::kTrainLast, [value](int, int64_t) { return value; });
      if (!passed.ok()) return passed;
      auto result = rank->optimizer->Step();
      if (!result.ok()) {
        errors[group->rank()] = std::string(result.status().message());
        return absl::OkStatus();
      }
      ++calls[group->rank()];
      if (group->rank() == 0) (void)result->Get();
    }
    return absl::InternalError("the run was not stopped");
  }));
  for (int r = 0; r < 2; ++r) {
    CHECK(calls[r] == 5);
    CHECK_THAT(errors[r], ContainsSubstring("step 4: the schedules give no values"));
  }
}

}  // namespace
}  // namespace zero::test
