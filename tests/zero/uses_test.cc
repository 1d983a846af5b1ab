// Uses on several streams, uses that end badly, and what a refused verb leaves behind.
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "device/status.h"
#include "tests/catch.h"
#include "tests/zero/rank_fixture.h"
#include "tests/zero/toy_trainer.h"

namespace zero::test {
namespace {

void Sleep(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// u0 is large; u3, u2, u1 share one slot and one call with it off.
Model GroupedModel() {
  Model model = SimpleModel(4, 100);
  model.units[0].parameters[0].shape = {2000};
  return model;
}

struct Door {
  std::mutex mutex;
  std::condition_variable opened;
  bool open = false;
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex);
    opened.wait(lock, [&] { return open; });
  }
  void Open() {
    std::lock_guard<std::mutex> lock(mutex);
    open = true;
    opened.notify_all();
  }
};

absl::Status WriteConstant(const Stream& stream, const Gradients& gradients, int64_t n, float value,
                           int delay_ms = 0) {
  auto* const data = static_cast<float*>(gradients.data[0]);
  const bool add = gradients.accumulate;
  return stream.Enqueue("backward", [=] {
    if (delay_ms > 0) Sleep(delay_ms);
    for (int64_t i = 0; i < n; ++i) data[i] = (add ? data[i] : 0) + value;
    return absl::OkStatus();
  });
}

absl::Status CheckGradient(ShardedOptimizer& optimizer, const char* name, int64_t n, float wanted) {
  std::vector<float> values(static_cast<size_t>(n));
  ZERO_RETURN_IF_ERROR(optimizer.Gather(State::kGradient, name, absl::MakeSpan(values)));
  for (float v : values) {
    if (v == wanted) continue;
    return absl::InternalError(std::string(name) + " is " + std::to_string(v) + ", not " +
                               std::to_string(wanted));
  }
  return absl::OkStatus();
}

}  // namespace

TEST_CASE(
    "Gradients: a unit passed over counts as zeros where a later one of its group is acquired",
    "[zero][thread]") {
  for (int stage = 0; stage < 4; ++stage) {
    INFO("stage " << stage);
    LocalWorld world(2, absl::Seconds(20));
    CHECK_OK(RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
      Config config;
      config.stage = stage;
      HostDevice::Options options;
      options.hook = [](const std::string& stream, const char* operation) {
        if (stream.substr(0, 4) == "math" && std::string(operation) == "fill") Sleep(30);
        return absl::OkStatus();
      };
      ZERO_ASSIGN_OR_RETURN(Rank rank, Rank::Create(config, GroupedModel(), group, options));
      ZERO_RETURN_IF_ERROR(rank.Pass(Pass::kTrainLast, [](int, int64_t) { return 1.0f; }));
      ZERO_RETURN_IF_ERROR(rank.optimizer->Step().status());
      ShardedOptimizer& optimizer = *rank.optimizer;
      ZERO_RETURN_IF_ERROR(optimizer.BeginPass(Pass::kTrainLast));
      for (int u : {2, 1, 0}) {  // u3 is passed over
        ZERO_ASSIGN_OR_RETURN(const Gradients gradients,
                              optimizer.AcquireGradients(u, *rank.stream));
        ZERO_RETURN_IF_ERROR(WriteConstant(*rank.stream, gradients, u == 0 ? 2000 : 100, 2));
        ZERO_RETURN_IF_ERROR(optimizer.ReduceGradients(u, *rank.stream));
      }
      ZERO_RETURN_IF_ERROR(CheckGradient(optimizer, "u3.w", 100, 0));
      ZERO_RETURN_IF_ERROR(CheckGradient(optimizer, "u2.w", 100, 4));
      return optimizer.Step().status();
    }));
  }
}

TEST_CASE("Gradients: units of one group may be written on two streams at once", "[zero][thread]") {
  for (int stage = 0; stage < 4; ++stage) {
    INFO("stage " << stage);
    LocalWorld world(2, absl::Seconds(20));
    CHECK_OK(RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
      Config config;
      config.stage = stage;
      ZERO_ASSIGN_OR_RETURN(Rank rank, Rank::Create(config, GroupedModel(), group));
      ZERO_ASSIGN_OR_RETURN(std::unique_ptr<Stream> second, rank.device->CreateStream("second"));
      ShardedOptimizer& optimizer = *rank.optimizer;
      for (int step = 1; step <= 2; ++step) {
        ZERO_RETURN_IF_ERROR(optimizer.BeginPass(Pass::kTrainLast));
        ZERO_ASSIGN_OR_RETURN(const Gradients a, optimizer.AcquireGradients(3, *rank.stream));
        ZERO_ASSIGN_OR_RETURN(const Gradients b, optimizer.AcquireGradients(2, *second));
        ZERO_RETURN_IF_ERROR(WriteConstant(*rank.stream, a, 100, 5.0f * step, 30));
        ZERO_RETURN_IF_ERROR(WriteConstant(*second, b, 100, 3.0f * step));
        ZERO_RETURN_IF_ERROR(optimizer.ReduceGradients(3, *rank.stream));
        ZERO_RETURN_IF_ERROR(optimizer.ReduceGradients(2, *second));
        ZERO_RETURN_IF_ERROR(CheckGradient(optimizer, "u3.w", 100, 10.0f * step));
        ZERO_RETURN_IF_ERROR(CheckGradient(optimizer, "u2.w", 100, 6.0f * step));
        ZERO_RETURN_IF_ERROR(optimizer.Step().status());
      }
      ZERO_RETURN_IF_ERROR(optimizer.Finish());
      return rank.stream->Synchronize();
    }));
  }
}

TEST_CASE("Gradients: a second use of a resident unit on another stream starts after the first",
          "[zero][thread]") {
  for (int stage = 0; stage < 4; ++stage) {
    INFO("stage " << stage);
    LocalWorld world(1);
    Config config;
    config.stage = stage;
    Model model = SimpleModel(1, 100);
    model.units[0].resident = true;
    auto rank = Rank::Create(config, model, world.group(0));
    REQUIRE_OK(rank.status());
    auto second = rank->device->CreateStream("second");
    REQUIRE_OK(second.status());
    ShardedOptimizer& optimizer = *rank->optimizer;
    REQUIRE_OK(optimizer.BeginPass(Pass::kTrainLast));
    auto first_use = optimizer.AcquireGradients(0, *rank->stream);
    REQUIRE_OK(first_use.status());
    REQUIRE_OK(WriteConstant(*rank->stream, *first_use, 100, 1, 30));
    auto second_use = optimizer.AcquireGradients(0, **second);
    REQUIRE_OK(second_use.status());
    CHECK(second_use->accumulate);
    REQUIRE_OK(WriteConstant(**second, *second_use, 100, 2));
    REQUIRE_OK(optimizer.ReduceGradients(0, **second));
    CHECK_OK(CheckGradient(optimizer, "u0.w", 100, 3));
    REQUIRE_OK(optimizer.Step().status());
    REQUIRE_OK(rank->stream->Synchronize());
  }
}

// The next three show under AddressSanitizer: the optimizer's memory goes while a stream reads it.
TEST_CASE(
    "Destructor: waits for the trainer's released work after the arithmetic stream has failed",
    "[zero][errors]") {
  LocalWorld world(1);
  Config config;
  config.stage = 0;
  std::atomic<bool> fail{false};
  HostDevice::Options options;
  options.hook = [&](const std::string& stream, const char*) -> absl::Status {
    if (fail && stream == "math-0") return absl::UnavailableError("planted");
    return absl::OkStatus();
  };
  auto rank = Rank::Create(config, SimpleModel(2, 1000), world.group(0), options);
  REQUIRE_OK(rank.status());
  std::atomic<bool> freed{false}, late{false};
  REQUIRE_OK(rank->optimizer->BeginPass(Pass::kTrain));
  auto weights = rank->optimizer->AcquireWeights(0, *rank->stream);
  REQUIRE_OK(weights.status());
  REQUIRE_OK(rank->stream->Enqueue("forward", [&, data = weights->data[0]] {
    Sleep(100);
    late = freed.load();
    if (!late) return absl::OkStatus();
    return static_cast<const float*>(data)[999] == 0 ? absl::OkStatus()
                                                     : absl::DataLossError("freed");
  }));
  REQUIRE_OK(rank->optimizer->ReleaseWeights(0, *rank->stream));
  fail = true;
  (void)rank->optimizer->BeginPass(Pass::kTrain);  // passes over both: the fill fails
  rank->optimizer.reset();
  freed = true;
  CHECK_OK(rank->stream->Synchronize());
  CHECK_FALSE(late);
}

TEST_CASE("Destructor: waits for a use whose Release was refused because the group had died",
          "[zero][errors]") {
  for (int stage = 0; stage < 4; ++stage) {
    INFO("stage " << stage);
    LocalWorld world(1);
    Config config;
    config.stage = stage;
    auto rank = Rank::Create(config, SimpleModel(2, 1000), world.group(0));
    REQUIRE_OK(rank.status());
    std::atomic<bool> freed{false}, late{false};
    REQUIRE_OK(rank->optimizer->BeginPass(Pass::kTrain));
    auto weights = rank->optimizer->AcquireWeights(0, *rank->stream);
    REQUIRE_OK(weights.status());
    auto gradients = rank->optimizer->AcquireGradients(0, *rank->stream);
    REQUIRE_OK(gradients.status());
    REQUIRE_OK(
        rank->stream->Enqueue("backward", [&, from = weights->data[0], to = gradients->data[0]] {
          Sleep(100);
          late = freed.load();
          static_cast<float*>(to)[999] = static_cast<const float*>(from)[999];
          return absl::OkStatus();
        }));
    world.group(0)->Abort(absl::UnavailableError("another rank died"));
    CHECK_FALSE(rank->optimizer->ReduceGradients(0, *rank->stream).ok());
    CHECK_FALSE(rank->optimizer->ReleaseWeights(0, *rank->stream).ok());
    rank->optimizer.reset();
    freed = true;
    (void)rank->stream->Synchronize();  // stage 3: the gather may have failed
    CHECK_FALSE(late);
  }
}

TEST_CASE("Destructor: waits for a use that was never released", "[zero][errors]") {
  for (int stage = 0; stage < 4; ++stage) {
    INFO("stage " << stage);
    LocalWorld world(1);
    Config config;
    config.stage = stage;
    auto rank = Rank::Create(config, SimpleModel(2, 1000), world.group(0));
    REQUIRE_OK(rank.status());
    std::atomic<bool> freed{false}, late{false};
    REQUIRE_OK(rank->optimizer->BeginPass(Pass::kTrain));
    auto weights = rank->optimizer->AcquireWeights(0, *rank->stream);
    REQUIRE_OK(weights.status());
    REQUIRE_OK(rank->stream->Enqueue("forward", [&, data = weights->data[0]] {
      Sleep(100);
      late = freed.load();
      return static_cast<const float*>(data)[999] == 0 ? absl::OkStatus()
                                                       : absl::DataLossError("freed");
    }));
    rank->optimizer.reset();  // the trainer returned early, with an error of its own
    freed = true;
    CHECK_OK(rank->stream->Synchronize());
    CHECK_FALSE(late);
  }
}

TEST_CASE("Destructor: waits for a use of the gradients of a frozen unit", "[zero][thread]") {
  for (int stage = 0; stage < 4; ++stage) {
    for (const bool reduced : {false, true}) {
      INFO("stage " << stage << (reduced ? ", reduced" : ""));
      LocalWorld world(1);
      Config config;
      config.stage = stage;
      Model model = SimpleModel(2, 1000);
      model.units[0].parameters[0].trainable = false;
      auto rank = Rank::Create(config, model, world.group(0));
      REQUIRE_OK(rank.status());
      std::atomic<bool> freed{false}, late{false};
      REQUIRE_OK(rank->optimizer->BeginPass(Pass::kTrain));
      auto gradients = rank->optimizer->AcquireGradients(0, *rank->stream);
      REQUIRE_OK(gradients.status());
      REQUIRE_OK(rank->stream->Enqueue("backward", [&, data = gradients->data] {
        Sleep(20);
        late = freed.load();
        return !late && data[0] == nullptr ? absl::OkStatus() : absl::DataLossError("freed");
      }));
      if (reduced) REQUIRE_OK(rank->optimizer->ReduceGradients(0, *rank->stream));
      rank->optimizer.reset();
      freed = true;
      CHECK_OK(rank->stream->Synchronize());
      CHECK_FALSE(late);
    }
  }
}

TEST_CASE("Misuse: a refused Step, BeginPass or AcquireGradients passes no unit over",
          "[zero][errors]") {
  for (int stage = 0; stage < 4; ++stage) {
    for (const int verb : {0, 1, 2}) {
      INFO("stage " << stage << ", verb " << verb);
      LocalWorld world(1);
      Config config;
      config.stage = stage;
      config.reduce_bucket_size = 1;
      auto rank = Rank::Create(config, SimpleModel(5, 100), world.group(0));
      REQUIRE_OK(rank.status());
      ShardedOptimizer& optimizer = *rank->optimizer;
      const Stream& stream = *rank->stream;
      REQUIRE_OK(optimizer.BeginPass(verb == 1 ? Pass::kTrain : Pass::kTrainLast));
      REQUIRE_OK(optimizer.AcquireGradients(3, stream).status());
      if (verb == 0) CHECK(absl::IsFailedPrecondition(optimizer.Step().status()));
      if (verb == 1) CHECK(absl::IsFailedPrecondition(optimizer.BeginPass(Pass::kTrain)));
      // Stages 2 and 3: unit 1 uses the slot of unit 3. Elsewhere this is allowed.
      if (verb == 2) (void)optimizer.AcquireGradients(1, stream).status();
      // Unit 4 was not acquired yet, and still may be.
      CHECK_OK(optimizer.AcquireGradients(4, stream).status());
    }
  }
}

TEST_CASE("Write: is refused within a step, after an evaluation too", "[zero][errors]") {
  LocalWorld world(1);
  auto rank = Rank::Create(Config(), SimpleModel(2, 10), world.group(0));
  REQUIRE_OK(rank.status());
  REQUIRE_OK(rank->Pass(Pass::kTrain, [](int, int64_t) { return 1.0f; }));
  CHECK(absl::IsFailedPrecondition(rank->optimizer->Write(State::kMaster, InitialValues())));
  REQUIRE_OK(rank->optimizer->BeginPass(Pass::kEvaluate));
  CHECK(absl::IsFailedPrecondition(rank->optimizer->Write(State::kMaster, InitialValues())));
}

TEST_CASE("Wire: an evaluation between micro-batches leaves the training traffic as planned",
          "[zero]") {
  ToyRun run;
  run.model = SimpleModel(5, 100);
  run.ranks = 2;
  run.micro_batches = 3;
  run.config.stage = 3;
  run.evaluate_within = 1;
  const Outcome outcome = RunToy(run);
  REQUIRE_OK(outcome.status);
  CHECK(outcome.traffic[2].at(kGatherWeights).bytes - outcome.traffic[1].at(kGatherWeights).bytes ==
        outcome.plan.step_wire(3).at(kGatherWeights));
}

TEST_CASE("Pending: a result that was asked for too early still arrives", "[zero]") {
  LocalWorld world(1, absl::Milliseconds(50));
  Door door;
  auto rank = Rank::Create(Config(), SimpleModel(2, 10), world.group(0));
  REQUIRE_OK(rank.status());
  REQUIRE_OK(rank->stream->Enqueue("slow", [&] {
    door.Wait();
    return absl::OkStatus();
  }));
  REQUIRE_OK(rank->Pass(Pass::kTrainLast, [](int, int64_t) { return 1.0f; }));
  auto result = rank->optimizer->Step();
  REQUIRE_OK(result.status());
  CHECK(absl::IsDeadlineExceeded(result->Get().status()));
  CHECK_FALSE(result->Ready());
  door.Open();
  REQUIRE_OK(rank->optimizer->Finish());
  CHECK_OK(result->Get().status());
  REQUIRE_OK(rank->Pass(Pass::kTrainLast, [](int, int64_t) { return 1.0f; }));
  CHECK_OK(rank->optimizer->Step().status());
}

TEST_CASE("Config: a loss scale that is no positive finite fp32 is refused", "[zero]") {
  for (const double scale : {1e-60, 1e60}) {
    Config config;
    config.loss_scale.scale = scale;
    CHECK(absl::IsInvalidArgument(MakePlan(config, SimpleModel(1, 1), 1).status()));
  }
}

TEST_CASE("Config: an epsilon that makes 0/0 of the gaps is refused", "[zero]") {
  // epsilon 0 or below the smallest fp32: a gap, and an element whose gradient is 0, becomes NaN.
  for (const double epsilon : {0.0, 1e-60}) {
    Config config;
    config.epsilon = epsilon;
    CHECK(absl::IsInvalidArgument(MakePlan(config, SimpleModel(1, 1), 1).status()));
  }
}

TEST_CASE("Adopted: addresses without memory are refused by what is missing", "[zero]") {
  LocalWorld world(1);
  HostDevice device;
  Config config;
  config.stage = 1;
  alignas(64) static char memory[4096];
  Adopted adopted;
  adopted.weight_addresses = {memory, memory + 512};
  const auto created =
      ShardedOptimizer::Create(config, SimpleModel(2, 100), &device, world.group(0), adopted);
  INFO(created.status().ToString());
  CHECK(absl::IsInvalidArgument(created.status()));
  CHECK_THAT(std::string(created.status().message()), !ContainsSubstring("lies at byte"));
}

TEST_CASE("Destructor: a stream that went before the optimizer is not waited for",
          "[zero][errors]") {
  for (int stage = 0; stage < 4; ++stage) {
    LocalWorld world(1);
    Config config;
    config.stage = stage;
    auto rank = Rank::Create(config, SimpleModel(2, 100), world.group(0));
    REQUIRE_OK(rank.status());
    REQUIRE_OK(rank->optimizer->BeginPass(Pass::kTrain));
    REQUIRE_OK(rank->optimizer->AcquireWeights(1, *rank->stream).status());
    REQUIRE_OK(rank->optimizer->AcquireGradients(1, *rank->stream).status());
    rank->stream.reset();  // as when a trainer returns early and made its stream last
    rank->optimizer.reset();
    CHECK(rank->device->memory()[static_cast<int>(MemoryCategory::kWeights)].current == 0);
  }
}

}  // namespace zero::test
