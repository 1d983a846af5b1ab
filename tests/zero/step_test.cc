// What a step applies, when it does not, and that it never waits.
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>

#include "tests/catch.h"
#include "tests/zero/rank_fixture.h"
#include "tests/zero/toy_trainer.h"

namespace zero::test {
namespace {

Config SgdConfig(int stage) {
  Config config;
  config.stage = stage;
  config.optimizer = OptimizerKind::kSgd;
  config.learning_rate = 1;
  return config;
}

std::vector<float> Get(Rank& rank, State state, const std::string& name, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  REQUIRE_OK(rank.optimizer->Gather(state, name, absl::MakeSpan(values)));
  return values;
}

}  // namespace

TEST_CASE("Step: the norm of the applied gradient equals the limit where it clips",
          "[zero][step]") {
  for (int stage = 0; stage < 4; ++stage) {
    LocalWorld world(1);
    Config config = SgdConfig(stage);
    config.clip_norm = 1;
    auto rank = Rank::Create(config, SimpleModel(2, 2), world.group(0));
    REQUIRE_OK(rank.status());
    // Four elements of 3: norm 6. With rate 1 and no momentum the weights move by the gradient.
    REQUIRE_OK(rank->Pass(Pass::kTrainLast, [](int, int64_t) { return 3.0f; }));
    auto result = rank->optimizer->Step();
    REQUIRE_OK(result.status());
    const auto step = result->Get();
    REQUIRE_OK(step.status());
    CHECK(step->gradient_norm == 6);
    CHECK(step->clip_coefficient == Approx(1 / (6 + 1e-6)).epsilon(1e-15));
    double squares = 0;
    for (const char* name : {"u0.w", "u1.w"}) {
      for (float w : Get(*rank, State::kWeight, name, 2)) squares += double{w} * w;
    }
    CHECK(std::sqrt(squares) == Approx(1).epsilon(1e-6));
  }
}

TEST_CASE("Step: a norm within the limit is not scaled", "[zero][step]") {
  LocalWorld world(1);
  Config config = SgdConfig(3);
  config.clip_norm = 6.5;
  auto rank = Rank::Create(config, SimpleModel(2, 2), world.group(0));
  REQUIRE_OK(rank.status());
  REQUIRE_OK(rank->Pass(Pass::kTrainLast, [](int, int64_t) { return 3.0f; }));
  auto result = rank->optimizer->Step();
  REQUIRE_OK(result.status());
  CHECK(result->Get()->clip_coefficient == 1);
  CHECK(Get(*rank, State::kWeight, "u0.w", 2) == std::vector<float>{-3, -3});
}

TEST_CASE("Step: the gradient is divided by ranks x micro-batches, or by the loss weights",
          "[zero][step]") {
  for (int stage = 0; stage < 4; ++stage) {
    for (const bool weighted : {false, true}) {
      LocalWorld world(2, absl::Seconds(20));
      std::vector<float> weights[2];
      double divisor[2];
      REQUIRE_OK(RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
        auto rank = Rank::Create(SgdConfig(stage), SimpleModel(1, 5), group);
        if (!rank.ok()) return rank.status();
        for (const Pass pass : {Pass::kTrain, Pass::kTrain, Pass::kTrainLast}) {
          const absl::Status passed = rank->Pass(pass, [](int, int64_t) { return 3.0f; });
          if (!passed.ok()) return passed;
        }
        // A rank without valid tokens counts nothing.
        auto result = rank->optimizer->Step(weighted ? 9.0 * group->rank() : 0);
        if (!result.ok()) return result.status();
        divisor[group->rank()] = result->Get()->loss_weight;
        weights[group->rank()].resize(5);
        return rank->optimizer->Gather(State::kWeight, "u0.w",
                                       absl::MakeSpan(weights[group->rank()]));
      }));
      const float wanted = weighted ? -18.0f / 9 : -18.0f / 6;
      for (int r = 0; r < 2; ++r) {
        CHECK(divisor[r] == (weighted ? 9 : 6));
        CHECK(weights[r] == std::vector<float>(5, wanted));
      }
    }
  }
}

TEST_CASE("Step: a gradient that is not finite on one rank skips the step on all, and is named",
          "[zero][step]") {
  const float bad[] = {std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  for (int stage = 0; stage < 4; ++stage) {
    for (int spoiled_rank = 0; spoiled_rank < 3; ++spoiled_rank) {
      ToyRun run;
      run.model = MakeModel("mixed", DType::kBF16);
      run.ranks = 3;
      run.steps = 3;
      run.config.stage = stage;
      run.exact_gradients = true;
      run.config.groups = {{}, {}};
      run.config.schedule = [](int64_t count) { return 0.1 / static_cast<double>(count); };
      run.spoil = [&](int rank, int step, std::vector<float>& gradient) {
        // 300 elements: parameter "b.0" only.
        if (step == 1 && rank == spoiled_rank && gradient.size() == 300) {
          gradient[299] = bad[spoiled_rank % 2];
        }
      };
      INFO("stage " << stage << ", rank " << spoiled_rank);
      const Outcome outcome = RunToy(run);
      REQUIRE_OK(outcome.status);
      CHECK(outcome.steps[0].applied);
      CHECK_FALSE(outcome.steps[1].applied);
      CHECK(outcome.steps[1].first_non_finite == "b.0");
      CHECK(outcome.steps[1].applied_steps == 1);
      CHECK(outcome.steps[2].applied);
      CHECK(outcome.steps[2].first_non_finite == "");
      CHECK(outcome.steps[2].applied_steps == 2);
      // The skipped step moved no schedule.
      CHECK(outcome.steps[0].learning_rate == 0.1);
      CHECK(outcome.steps[2].learning_rate == 0.05);

      // It is as if the step had never been: the same as two steps with its neighbours' gradients.
      ToyRun without = run;
      without.steps = 2;
      without.skip_step = 1;
      without.spoil = nullptr;
      const Outcome clean = RunToy(without);
      REQUIRE_OK(clean.status);
      CHECK(clean.weights == outcome.weights);
      CHECK(clean.masters == outcome.masters);
      CHECK(clean.moment1 == outcome.moment1);
      CHECK(clean.moment2 == outcome.moment2);
    }
  }
}

TEST_CASE("Step: no verb waits for the device while two steps are enqueued",
          "[zero][step][thread]") {
  for (int stage = 0; stage < 4; ++stage) {
    INFO("stage " << stage);
    LocalWorld world(1, absl::Seconds(20));
    std::mutex mutex;
    std::condition_variable opened;
    bool open = false;
    auto rank = Rank::Create(SgdConfig(stage), SimpleModel(3, 100), world.group(0));
    REQUIRE_OK(rank.status());
    // The trainer's stream is stuck: a verb that waited for it would never come back.
    REQUIRE_OK(rank->stream->Enqueue("stuck", [&] {
      std::unique_lock<std::mutex> lock(mutex);
      opened.wait(lock, [&] { return open; });
      return absl::OkStatus();
    }));
    const int64_t waits = rank->device->host_waits();
    std::vector<Pending<StepResult>> results;
    for (int step = 0; step < 2; ++step) {
      REQUIRE_OK(rank->Pass(Pass::kTrain, [](int, int64_t) { return 1.0f; }));
      REQUIRE_OK(rank->Pass(Pass::kTrainLast, [](int, int64_t) { return 1.0f; }));
      auto result = rank->optimizer->Step();
      REQUIRE_OK(result.status());
      results.push_back(*result);
    }
    CHECK(rank->device->host_waits() == waits);
    for (auto& result : results) CHECK_FALSE(result.Ready());
    {
      std::lock_guard<std::mutex> lock(mutex);
      open = true;
    }
    opened.notify_all();
    for (auto& result : results) CHECK_OK(result.Get().status());
    CHECK(results[1].Get()->applied_steps == 2);
  }
}

TEST_CASE("Pending: a result outlives its optimizer, and any thread may ask for it",
          "[zero][step][thread]") {
  LocalWorld world(1);
  std::vector<Pending<StepResult>> results;
  {
    auto rank = Rank::Create(SgdConfig(2), SimpleModel(2, 10), world.group(0));
    REQUIRE_OK(rank.status());
    for (int step = 0; step < 5; ++step) {
      REQUIRE_OK(rank->Pass(Pass::kTrainLast, [](int, int64_t) { return 1.0f; }));
      auto result = rank->optimizer->Step();
      REQUIRE_OK(result.status());
      results.push_back(*result);
    }
    absl::Status seen[2];
    std::thread a([&] { seen[0] = results[4].Get().status(); });
    std::thread b([&] { seen[1] = results[4].Get().status(); });
    a.join();
    b.join();
    CHECK_OK(seen[0]);
    CHECK_OK(seen[1]);
  }
  for (int step = 0; step < 5; ++step) {
    CHECK(results[step].Ready());
    CHECK(results[step].Get()->step == step + 1);
    CHECK(results[step].Get()->applied_steps == step + 1);
  }
}

TEST_CASE("Step: the schedule is asked for counts of applied steps, from 1", "[zero][step]") {
  LocalWorld world(1);
  Config config = SgdConfig(1);
  config.schedule = [](int64_t count) { return 10.0 * static_cast<double>(count); };
  auto rank = Rank::Create(config, SimpleModel(1, 1), world.group(0));
  REQUIRE_OK(rank.status());
  float weight = 0;
  for (int step = 1; step <= 6; ++step) {
    REQUIRE_OK(rank->Pass(Pass::kTrainLast, [](int, int64_t) { return 1.0f; }));
    auto result = rank->optimizer->Step();
    REQUIRE_OK(result.status());
    // Half of the results stay outstanding.
    if (step % 2 == 0) CHECK(result->Get()->learning_rate == 10.0 * step);
    weight -= 10.0f * static_cast<float>(step);
  }
  CHECK(Get(*rank, State::kWeight, "u0.w", 1)[0] == weight);
}

TEST_CASE("Step: a schedule that gives no rate is refused, and nothing changes", "[zero][step]") {
  LocalWorld world(1);
  Config config = SgdConfig(3);
  double rate = std::numeric_limits<double>::quiet_NaN();
  config.schedule = [&](int64_t) { return rate; };
  auto rank = Rank::Create(config, SimpleModel(2, 3), world.group(0));
  REQUIRE_OK(rank.status());
  REQUIRE_OK(rank->Pass(Pass::kTrainLast, [](int, int64_t) { return 2.0f; }));
  const absl::Status refused = rank->optimizer->Step().status();
  CHECK(absl::IsInvalidArgument(refused));
  CHECK_THAT(std::string(refused.message()), ContainsSubstring("for applied step 1"));
  rate = 1;
  CHECK_OK(rank->optimizer->Step().status());
  CHECK(Get(*rank, State::kWeight, "u0.w", 3) == std::vector<float>{-2, -2, -2});
}

TEST_CASE("Step: the loss scale is divided out", "[zero][step]") {
  LocalWorld world(1);
  Config config = SgdConfig(3);
  config.loss_scale.scale = 1024;
  auto rank = Rank::Create(config, SimpleModel(1, 3), world.group(0));
  REQUIRE_OK(rank.status());
  CHECK(*rank->optimizer->loss_scale() == 1024);
  REQUIRE_OK(rank->Pass(Pass::kTrainLast, [](int, int64_t) { return 2.0f * 1024; }));
  auto result = rank->optimizer->Step();
  REQUIRE_OK(result.status());
  CHECK(result->Get()->gradient_norm == Approx(2 * std::sqrt(3.0)).epsilon(1e-15));
  CHECK(Get(*rank, State::kWeight, "u0.w", 3) == std::vector<float>{-2, -2, -2});
}

}  // namespace zero::test
