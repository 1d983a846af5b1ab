// Offloaded units that are updated while backward runs: nothing is clipped, no overflow checked.
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/local_group.h"
#include "device/host_device.h"
#include "device/status.h"
#include "tests/catch.h"
#include "tests/zero/toy_trainer.h"

namespace zero::test {
namespace {

Config EarlyConfig(int stage) {
  Config config;
  config.stage = stage;
  config.offload.optimizer = Place::kHost;
  config.check_overflow = false;
  config.reduce_bucket_size = 1;
  return config;
}

// Counts the updates that have run on the host.
class CountingDevice : public HostDevice {
 public:
  explicit CountingDevice(std::atomic<int>* updates)
      : HostDevice({.hook = [updates](const std::string& stream, const char* operation) {
          if (stream.rfind("optimizer", 0) == 0 && std::strcmp(operation, "adam") == 0) ++*updates;
          return absl::OkStatus();
        }}) {}
};

Model ThreeUnits() {
  Model model;
  for (const char* name : {"a", "b", "c"}) {
    Parameter parameter;
    parameter.name = std::string(name) + ".0";
    parameter.shape = {300};
    Unit unit;
    unit.name = name;
    unit.parameters = {parameter};
    model.units.push_back(unit);
  }
  return model;
}

// One rank, driven verb by verb.
struct Driven {
  explicit Driven(const Config& config) : device(&updates), world(1) {
    auto made = ShardedOptimizer::Create(config, ThreeUnits(), &device, world.group(0));
    REQUIRE_OK(made.status());
    optimizer = *std::move(made);
    REQUIRE_OK(optimizer->Write(State::kMaster, InitialValues()));
    auto created = device.CreateStream("trainer");
    REQUIRE_OK(created.status());
    stream = *std::move(created);
  }
  void Forward(Pass pass, double weight = 0) {
    REQUIRE_OK(optimizer->BeginPass(pass, weight));
    for (int u = 0; u < 3; ++u) {
      REQUIRE_OK(optimizer->AcquireWeights(u, *stream).status());
      REQUIRE_OK(optimizer->ReleaseWeights(u, *stream));
    }
  }
  void Reduce(int unit, float value) {
    REQUIRE_OK(optimizer->AcquireWeights(unit, *stream).status());
    const auto gradients = optimizer->AcquireGradients(unit, *stream);
    REQUIRE_OK(gradients.status());
    auto* const to = static_cast<uint16_t*>(gradients->data[0]);
    const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
    REQUIRE_OK(stream->Enqueue("backward", [to, bits] {
      for (int i = 0; i < 300; ++i) to[i] = bits;
      return absl::OkStatus();
    }));
    REQUIRE_OK(optimizer->ReduceGradients(unit, *stream));
  }
  void Backward(int unit, float value = 1) {
    Reduce(unit, value);
    REQUIRE_OK(optimizer->ReleaseWeights(unit, *stream));
  }
  // Whether `count` updates have run, or do within a while.
  bool Updates(int count) const {
    for (int ms = 0; ms < 20'000 && updates < count; ++ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return updates == count;
  }
  std::vector<float> Masters() {
    std::vector<float> all;
    REQUIRE_OK(optimizer->Read(State::kMaster,
                               [&](const Parameter&, int64_t, absl::Span<const float> values) {
                                 all.insert(all.end(), values.begin(), values.end());
                                 return absl::OkStatus();
                               }));
    return all;
  }

  std::atomic<int> updates{0};
  CountingDevice device;
  LocalWorld world;
  std::unique_ptr<ShardedOptimizer> optimizer;
  std::unique_ptr<Stream> stream;
};

}  // namespace

TEST_CASE("Updates during backward: a unit is updated once it is reduced and released",
          "[zero][thread]") {
  const int stage = GENERATE(1, 2, 3);
  Driven run(EarlyConfig(stage));
  int before = 0;
  for (int step = 0; step < 3; ++step) {
    run.Forward(Pass::kTrain);
    for (int u = 2; u >= 0; --u) run.Backward(u);
    run.Forward(Pass::kTrainLast);
    CHECK(run.Updates(before));
    run.Reduce(2, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(run.Updates(before));  // its weights may still be read
    REQUIRE_OK(run.optimizer->ReleaseWeights(2, *run.stream));
    CHECK(run.Updates(before + 1));
    run.Backward(1);
    CHECK(run.Updates(before + 2));
    // Unit 0 is passed over, and reduced in Step.
    const auto result = run.optimizer->Step();
    REQUIRE_OK(result.status());
    REQUIRE_OK(run.optimizer->Finish());
    before += 3;
    CHECK(run.updates == before);
  }
}

// A rank that leaves out units, an expert without tokens say, reduces them in a later verb. (In
// stage 3 gathers lie between the reductions.)
TEST_CASE("Updates during backward: ranks may pass over different units", "[zero][thread]") {
  const int stage = GENERATE(1, 2);
  LocalWorld world(2);
  CHECK_OK(RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
    HostDevice device;
    ZERO_ASSIGN_OR_RETURN(
        const auto optimizer,
        ShardedOptimizer::Create(EarlyConfig(stage), ThreeUnits(), &device, group));
    ZERO_RETURN_IF_ERROR(optimizer->Write(State::kMaster, InitialValues()));
    ZERO_ASSIGN_OR_RETURN(const auto stream, device.CreateStream("trainer"));
    for (int step = 0; step < 4; ++step) {
      ZERO_RETURN_IF_ERROR(optimizer->BeginPass(Pass::kTrainLast));
      for (int i = 0; i < 6; ++i) {
        const bool backward = i >= 3;
        const int u = backward ? 5 - i : i;
        ZERO_RETURN_IF_ERROR(optimizer->AcquireWeights(u, *stream).status());
        // Rank 0 leaves out one unit after the other, and all in the last step; rank 1 none.
        const bool left_out = group->rank() == 0 && (u == step || step == 3);
        if (backward && !left_out) {
          ZERO_ASSIGN_OR_RETURN(const Gradients gradients, optimizer->AcquireGradients(u, *stream));
          ZERO_RETURN_IF_ERROR(device.Fill(*stream, gradients.data[0], 0x3C, 600));
          ZERO_RETURN_IF_ERROR(optimizer->ReduceGradients(u, *stream));
        }
        ZERO_RETURN_IF_ERROR(optimizer->ReleaseWeights(u, *stream));
      }
      ZERO_RETURN_IF_ERROR(optimizer->Step().status());
    }
    return optimizer->Finish();
  }));
}

TEST_CASE("Updates during backward: with clipping or a check they wait for Step", "[zero]") {
  Config config = EarlyConfig(GENERATE(1, 2, 3));
  SECTION("a limit") { config.clip_norm = 1e9; }
  SECTION("a schedule of limits") {
    config.clip_schedule = [](int64_t) { return 0.0; };
  }
  SECTION("the check") { config.check_overflow = true; }
  Driven run(config);
  run.Forward(Pass::kTrainLast);
  for (int u = 2; u >= 0; --u) run.Backward(u);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(run.updates == 0);
  CHECK_OK(run.optimizer->Step().status());
  CHECK_OK(run.optimizer->Finish());
  CHECK(run.updates == 3);
}

TEST_CASE("Updates during backward: a weight of the loss comes with the last pass", "[zero]") {
  std::vector<float> masters[2];
  for (const bool early : {false, true}) {
    Config config = EarlyConfig(3);
    config.check_overflow = !early;
    Driven run(config);
    for (int step = 0; step < 3; ++step) {
      run.Forward(Pass::kTrainLast, 7 + step);
      for (int u = 2; u >= 0; --u) run.Backward(u, 0.25f * static_cast<float>(u + 1));
      // The same again is no contradiction.
      auto result = run.optimizer->Step(step == 1 ? 8 : 0);
      REQUIRE_OK(result.status());
      const auto value = result->Get();
      REQUIRE_OK(value.status());
      CHECK(value->loss_weight == 7 + step);
    }
    masters[early ? 1 : 0] = run.Masters();
  }
  CHECK(masters[0] == masters[1]);
}

TEST_CASE("Misuse: a weight of the loss that contradicts another or comes too late is refused",
          "[zero][misuse]") {
  const bool early = GENERATE(false, true);
  Config config = EarlyConfig(3);
  config.check_overflow = !early;
  Driven run(config);
  ShardedOptimizer& optimizer = *run.optimizer;
  CHECK(absl::IsInvalidArgument(optimizer.BeginPass(Pass::kTrain, 3)));
  CHECK(absl::IsInvalidArgument(optimizer.BeginPass(Pass::kTrainLast, -1)));
  CHECK(absl::IsInvalidArgument(
      optimizer.BeginPass(Pass::kTrainLast, std::numeric_limits<double>::quiet_NaN())));
  run.Forward(Pass::kTrainLast, 3);
  for (int u = 2; u >= 0; --u) run.Backward(u);
  const absl::Status other = optimizer.Step(4).status();
  CHECK(absl::IsInvalidArgument(other));
  CHECK_THAT(std::string(other.message()), ContainsSubstring("4") && ContainsSubstring("3"));
  CHECK_OK(optimizer.Step(3).status());

  run.Forward(Pass::kTrainLast);
  for (int u = 2; u >= 0; --u) run.Backward(u);
  const absl::Status late = optimizer.Step(4).status();
  if (!early) {
    CHECK_OK(late);
    return;
  }
  CHECK(absl::IsFailedPrecondition(late));
  CHECK_THAT(std::string(late.message()), ContainsSubstring("BeginPass"));
  CHECK_OK(optimizer.Step().status());
  CHECK_OK(optimizer.Finish());
}

TEST_CASE("Misuse: weights that change before Step are not used between", "[zero][misuse]") {
  const int stage = GENERATE(1, 2, 3);
  Driven run(EarlyConfig(stage));
  ShardedOptimizer& optimizer = *run.optimizer;
  run.Forward(Pass::kTrainLast);
  run.Backward(2);
  const absl::Status again = optimizer.AcquireWeights(2, *run.stream).status();
  CHECK(absl::IsFailedPrecondition(again));
  CHECK_THAT(std::string(again.message()), ContainsSubstring("'c'"));
  run.Backward(1);
  run.Backward(0);
  const absl::Status evaluation = optimizer.BeginPass(Pass::kEvaluate);
  CHECK(absl::IsFailedPrecondition(evaluation));
  CHECK_THAT(std::string(evaluation.message()), ContainsSubstring("after Step"));
  CHECK_OK(optimizer.Step().status());
  run.Forward(Pass::kEvaluate);
  CHECK_OK(optimizer.Finish());
}

TEST_CASE("Config: no check needs a static loss scale", "[zero]") {
  Config config;
  config.check_overflow = false;
  CHECK_OK(Validate(config));
  for (const LossScaling kind : {LossScaling::kDynamic, LossScaling::kGradScaler}) {
    config.loss_scale.kind = kind;
    config.loss_scale.scale = 1024;
    const absl::Status status = Validate(config);
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), ContainsSubstring("check_overflow"));
  }
}

TEST_CASE("Skips: unchecked an inf reaches the weights and is counted", "[zero]") {
  const int stage = GENERATE(0, 1, 2, 3);
  ToyRun run;
  run.model = MakeModel("odd", DType::kBF16);
  run.ranks = 2;
  run.config.stage = stage;
  run.config.check_overflow = false;
  run.overflow_step = 1;
  run.overflow_rank = 1;
  run.overflow_unit = 2;
  const Outcome outcome = RunToy(run);
  REQUIRE_OK(outcome.status);
  CHECK(outcome.steps[0].non_finite == 0);
  CHECK(outcome.steps[1].non_finite == 1);
  CHECK(outcome.steps[1].applied);
  CHECK(outcome.steps[1].first_non_finite == run.model.units[2].parameters[0].name);
  CHECK(outcome.steps[1].skipped_steps == 0);
  CHECK(outcome.steps[2].applied_steps == 3);
  int64_t bad = 0;
  for (const float value : outcome.masters.at(run.model.units[2].parameters[0].name)) {
    bad += std::isfinite(value) ? 0 : 1;
  }
  CHECK(bad == 1);
}

}  // namespace zero::test
