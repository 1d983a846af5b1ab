// Misuse is refused by name, and changes nothing.
#include <atomic>
#include <cmath>
#include <stdexcept>

#include "absl/time/clock.h"
#include "tests/catch.h"
#include "tests/zero/rank_fixture.h"
#include "tests/zero/toy_trainer.h"

namespace zero::test {
namespace {

void CheckMisuse(const absl::Status& status, const std::string& text) {
  INFO(status.ToString());
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring(text));
}

void CheckInvalid(const absl::Status& status, const std::string& text) {
  INFO(status.ToString());
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring(text));
}

absl::StatusOr<Rank> MakeRank(LocalWorld& world, int stage, int prefetch = 1, int units = 4) {
  Config config;
  config.stage = stage;
  config.prefetch = prefetch;
  return Rank::Create(config, SimpleModel(units, 10), world.group(0));
}

}  // namespace

TEST_CASE("Verbs: before BeginPass, with a wrong unit, or on another device's stream they fail",
          "[zero][errors]") {
  for (int stage = 0; stage < 4; ++stage) {
    LocalWorld world(1);
    auto rank = MakeRank(world, stage);
    REQUIRE_OK(rank.status());
    ShardedOptimizer& optimizer = *rank->optimizer;
    const Stream& stream = *rank->stream;
    CheckMisuse(optimizer.AcquireWeights(2, stream).status(), "AcquireWeights of unit 'u2'");
    CheckMisuse(optimizer.Step().status(), "kTrainLast");
    REQUIRE_OK(optimizer.BeginPass(Pass::kTrainLast));
    CheckInvalid(optimizer.AcquireWeights(4, stream).status(), "unit 4 does not exist");
    CheckInvalid(optimizer.AcquireGradients(-1, stream).status(), "unit -1 does not exist");
    HostDevice other;
    auto foreign = other.CreateStream("foreign");
    REQUIRE_OK(foreign.status());
    CheckInvalid(optimizer.AcquireWeights(1, **foreign).status(), "'foreign'");
    CheckMisuse(optimizer.ReleaseWeights(1, stream), "ReleaseWeights of unit 'u1'");
    CheckMisuse(optimizer.ReduceGradients(1, stream), "'u1'");
    REQUIRE_OK(optimizer.AcquireWeights(1, stream).status());
    CheckMisuse(optimizer.Step().status(), "'u1'");
    CheckMisuse(optimizer.BeginPass(Pass::kEvaluate), "'u1'");
    REQUIRE_OK(optimizer.ReleaseWeights(1, stream));
    CheckMisuse(optimizer.BeginPass(Pass::kTrain), "call Step first");
    CheckInvalid(optimizer.Step(-1).status(), "loss weight -1");
    // Nothing was spoiled.
    CHECK_OK(optimizer.Step().status());
    CHECK_OK(optimizer.Finish());
  }
}

TEST_CASE("Verbs: an evaluation refuses gradients", "[zero][errors]") {
  LocalWorld world(1);
  auto rank = MakeRank(world, 3);
  REQUIRE_OK(rank.status());
  REQUIRE_OK(rank->optimizer->BeginPass(Pass::kEvaluate));
  CheckMisuse(rank->optimizer->AcquireGradients(0, *rank->stream).status(), "evaluation");
  CheckMisuse(rank->optimizer->ReduceGradients(0, *rank->stream), "evaluation");
  CheckMisuse(rank->optimizer->Step().status(), "kTrainLast");
}

TEST_CASE("Verbs: gradients out of order, twice, or never reduced are refused", "[zero][errors]") {
  for (int stage = 0; stage < 4; ++stage) {
    INFO("stage " << stage);
    LocalWorld world(1);
    auto rank = MakeRank(world, stage);
    REQUIRE_OK(rank.status());
    ShardedOptimizer& optimizer = *rank->optimizer;
    const Stream& stream = *rank->stream;
    REQUIRE_OK(optimizer.BeginPass(Pass::kTrainLast));
    REQUIRE_OK(optimizer.AcquireGradients(2, stream).status());
    CheckMisuse(optimizer.AcquireGradients(2, stream).status(), "resident");
    REQUIRE_OK(optimizer.AcquireGradients(1, stream).status());
    CheckMisuse(optimizer.ReduceGradients(1, stream), "unit 'u2' comes before it");
    CheckInvalid(optimizer.ReduceGradients(2, stream, {1}), "unwritten parameter 1");
    REQUIRE_OK(optimizer.ReduceGradients(2, stream, {0}));
    CheckMisuse(optimizer.ReduceGradients(2, stream), "already reduced");
    CheckMisuse(optimizer.AcquireGradients(3, stream).status(), "passed over");
    CheckMisuse(optimizer.Step().status(), "unit 'u1' are acquired but not reduced");
    REQUIRE_OK(optimizer.ReduceGradients(1, stream, {0}));
    CHECK_OK(optimizer.Step().status());
    CHECK_OK(optimizer.Finish());
  }
}

TEST_CASE("Verbs: a slot that is still held is named", "[zero][errors]") {
  LocalWorld world(1);
  auto rank = MakeRank(world, 3, /*prefetch=*/0);
  REQUIRE_OK(rank.status());
  ShardedOptimizer& optimizer = *rank->optimizer;
  REQUIRE_OK(optimizer.BeginPass(Pass::kEvaluate));
  REQUIRE_OK(optimizer.AcquireWeights(0, *rank->stream).status());
  const absl::Status refused = optimizer.AcquireWeights(1, *rank->stream).status();
  CheckMisuse(refused, "its slot holds unit 'u0'");
  CheckMisuse(refused, "prefetch");
  REQUIRE_OK(optimizer.ReleaseWeights(0, *rank->stream));
  CHECK_OK(optimizer.AcquireWeights(1, *rank->stream).status());
  CHECK_OK(optimizer.ReleaseWeights(1, *rank->stream));
}

TEST_CASE("Verbs: weights and gradients have the same addresses in every step", "[zero]") {
  for (int stage = 0; stage < 4; ++stage) {
    LocalWorld world(1);
    auto rank = MakeRank(world, stage, /*prefetch=*/1, /*units=*/5);
    REQUIRE_OK(rank.status());
    std::vector<const void*> first;
    for (int step = 0; step < 3; ++step) {
      std::vector<const void*> seen;
      REQUIRE_OK(rank->optimizer->BeginPass(Pass::kTrainLast));
      for (int i = 0; i < 10; ++i) {
        const int u = i < 5 ? i : 9 - i;
        auto weights = rank->optimizer->AcquireWeights(u, *rank->stream);
        REQUIRE_OK(weights.status());
        seen.push_back(weights->data[0]);
        if (i >= 5) {
          auto gradients = rank->optimizer->AcquireGradients(u, *rank->stream);
          REQUIRE_OK(gradients.status());
          seen.push_back(gradients->data[0]);
          REQUIRE_OK(rank->optimizer->ReduceGradients(u, *rank->stream, {0}));
        }
        REQUIRE_OK(rank->optimizer->ReleaseWeights(u, *rank->stream));
      }
      REQUIRE_OK(rank->optimizer->Step().status());
      if (step == 0) first = seen;
      CHECK(seen == first);
    }
  }
}

TEST_CASE("Config: each wrong value is refused by field and value", "[zero][errors]") {
  const auto refused = [](const std::function<void(Config&)>& change, const std::string& text) {
    Config config;
    change(config);
    const auto plan = MakePlan(config, SimpleModel(1, 1), 1);
    CheckInvalid(plan.status(), text);
  };
  refused([](Config& c) { c.stage = 4; }, "stage is 4: it must be 0, 1, 2 or 3");
  refused([](Config& c) { c.stage = -1; }, "stage is -1");
  refused([](Config& c) { c.learning_rate = NAN; }, "learning_rate");
  refused([](Config& c) { c.beta1 = 1; }, "beta1 is 1");
  refused([](Config& c) { c.beta2 = -0.1; }, "beta2");
  refused([](Config& c) { c.epsilon = INFINITY; }, "epsilon");
  refused([](Config& c) { c.momentum = 1.5; }, "momentum");
  refused([](Config& c) { c.clip_norm = -1; }, "clip_norm is -1");
  refused([](Config& c) { c.loss_scale.scale = 0; }, "loss_scale.scale is 0");
  refused([](Config& c) { c.loss_scale.scale = INFINITY; }, "loss_scale.scale is inf");
  const auto dynamic = [&](const std::function<void(LossScale&)>& change, const std::string& text) {
    refused(
        [&](Config& c) {
          c.loss_scale.kind = LossScaling::kDynamic;
          c.loss_scale.scale = 16;
          change(c.loss_scale);
        },
        text);
  };
  dynamic([](LossScale& s) { s.window = 0; }, "loss_scale.window is 0");
  dynamic([](LossScale& s) { s.hysteresis = 0; }, "loss_scale.hysteresis is 0");
  dynamic([](LossScale& s) { s.minimum = 0; }, "loss_scale.minimum is 0");
  dynamic([](LossScale& s) { s.minimum = 32; }, "loss_scale.minimum is 32");
  refused([](Config& c) { c.max_consecutive_skips = -1; }, "max_consecutive_skips");
  refused([](Config& c) { c.gradient_predivide_factor = 0; }, "gradient_predivide_factor is 0");
  refused([](Config& c) { c.master = MasterKind::kSplit; }, "nearest_away");
  refused([](Config& c) { c.reduce_bucket_size = 0; }, "reduce_bucket_size");
  refused([](Config& c) { c.prefetch = -1; }, "prefetch");
  refused([](Config& c) { c.groups.clear(); }, "groups");
  refused([](Config& c) { c.groups[0].weight_decay = -1; }, "weight_decay");
}

TEST_CASE("Verbs: a model in which everything is frozen can be evaluated but not trained",
          "[zero][errors]") {
  LocalWorld world(1);
  Model model = SimpleModel(2, 3);
  for (Unit& unit : model.units) unit.parameters[0].trainable = false;
  auto rank = Rank::Create(Config(), model, world.group(0));
  REQUIRE_OK(rank.status());
  CHECK_OK(rank->optimizer->BeginPass(Pass::kEvaluate));
  const absl::Status refused = rank->optimizer->BeginPass(Pass::kTrainLast);
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), ContainsSubstring("nothing to train"));
}

TEST_CASE("Model: each wrong description is refused by name", "[zero][errors]") {
  const auto refused = [](const std::function<void(Model&)>& change, const std::string& text,
                          int ranks = 2) {
    Model model = SimpleModel(2, 3);
    change(model);
    CheckInvalid(MakePlan(Config(), model, ranks).status(), text);
  };
  refused([](Model& m) { m.units.clear(); }, "no units");
  refused([](Model& m) { m.units[1].name = "u0"; }, "unit name 'u0'");
  refused([](Model& m) { m.units[1].parameters[0].name = "u0.w"; }, "'u0.w' is used twice");
  refused([](Model& m) { m.units[1].parameters[0].aliases = {"u0.w"}; }, "'u0.w' is used twice");
  refused([](Model& m) { m.units[1].parameters[0].name = ""; }, "no name");
  refused([](Model& m) { m.units[0].parameters[0].shape = {-1}; }, "parameter 'u0.w'");
  refused(
      [](Model& m) {
        m.units[0].parameters[0].shape = {int64_t{1} << 40, 1 << 20};
      },
      "parameter 'u0.w'");
  refused(
      [](Model& m) {
        m.units[0].parameters[0].dtype = DType::kBF16;
        m.units[1].parameters[0].dtype = DType::kF16;
      },
      "parameter 'u1.w' is fp16 and 'u0.w' is bf16");
  refused([](Model& m) { m.units[0].parameters[0].group = 1; }, "group 1 does not exist");
  refused([](Model&) {}, "world size 0", 0);
}

TEST_CASE("Optimizer: a failing operation of one rank ends all ranks with its error",
          "[zero][errors][thread]") {
  for (int stage = 0; stage < 4; ++stage) {
    for (const bool throws : {false, true}) {
      ToyRun run;
      run.model = MakeModel("mixed", DType::kF32);
      run.ranks = 3;
      run.config.stage = stage;
      run.deadline = absl::Seconds(60);
      run.config.groups = {{}, {}};
      std::atomic<int> calls{0};
      run.hook = [&](const std::string& stream, const char* operation) -> absl::Status {
        const bool here = stream == "toy-1" && std::string(operation) == "backward";
        if (throws || !here || ++calls != 6) return absl::OkStatus();
        return absl::UnavailableError("the trainer failed");
      };
      run.spoil = [&](int rank, int step, std::vector<float>&) {
        if (throws && rank == 1 && step == 1) throw std::runtime_error("the trainer threw");
      };
      const absl::Time begin = absl::Now();
      const Outcome outcome = RunToy(run);
      INFO("stage " << stage << ": " << outcome.status.ToString());
      CHECK_FALSE(outcome.status.ok());
      CHECK_THAT(std::string(outcome.status.message()),
                 ContainsSubstring(throws ? "the trainer threw" : "the trainer failed"));
      CHECK(absl::Now() - begin < absl::Seconds(30));
      CHECK(outcome.live_bytes_left == 0);
    }
  }
}

}  // namespace zero::test
