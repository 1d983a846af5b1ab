#include "examples/llama/train_pass.h"

#include "tests/examples/small_model.h"

namespace zero::llama {
namespace {

using Verbs = std::vector<std::string>;

LlamaConfig OneLayer(bool tied) {
  LlamaConfig config = SmallConfig(4, 2, tied);
  config.num_hidden_layers = 1;
  return config;
}

TEST_CASE("TrainPass: uses each unit forward, then backward in reverse", "[examples][llama]") {
  SmallRun run(OneLayer(false), SmallOptions(DType::kF32));
  run.Train(SmallBatch());
  CHECK(run.optimizer.verbs ==
        Verbs{"begin", "weights embedding", "release embedding", "weights layers.0",
              "release layers.0", "weights head", "release head", "weights head", "gradients head",
              "reduce head", "release head", "weights layers.0", "gradients layers.0",
              "reduce layers.0", "release layers.0", "weights embedding", "gradients embedding",
              "reduce embedding", "release embedding"});
}

TEST_CASE("TrainPass: a tied embedding is used by the head and reduced once, at its last use",
          "[examples][llama]") {
  SmallRun run(OneLayer(true), SmallOptions(DType::kF32));
  run.Train(SmallBatch());
  CHECK(run.optimizer.verbs == Verbs{"begin",
                                     "weights embedding",
                                     "release embedding",
                                     "weights layers.0",
                                     "release layers.0",
                                     "weights embedding",
                                     "weights head",
                                     "release head",
                                     "release embedding",
                                     "weights embedding",
                                     "weights head",
                                     "gradients embedding",
                                     "gradients head",
                                     "reduce head",
                                     "release head",
                                     "release embedding",
                                     "weights layers.0",
                                     "gradients layers.0",
                                     "reduce layers.0",
                                     "release layers.0",
                                     "weights embedding",
                                     "gradients embedding",
                                     "reduce embedding",
                                     "release embedding"});
}

TEST_CASE("EvaluatePass: goes forward once and asks for no gradients", "[examples][llama]") {
  SmallRun run(OneLayer(false), SmallOptions(DType::kF32));
  const DeviceLoss loss;
  run.runner.Run(
      EvaluatePass(run.optimizer, *run.model, run.runner.stream(), SmallBatch(), loss.data()));
  CHECK(run.optimizer.verbs == Verbs{"begin", "weights embedding", "release embedding",
                                     "weights layers.0", "release layers.0", "weights head",
                                     "release head"});
}

TEST_CASE("TrainPass: refuses a pass without backward", "[examples][llama][errors]") {
  SmallRun run(OneLayer(false), SmallOptions(DType::kF32));
  const DeviceLoss loss;
  const absl::Status status = TrainPass(run.optimizer, *run.model, run.runner.stream(),
                                        Pass::kEvaluate, SmallBatch(), loss.data());
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(run.optimizer.verbs.empty());
}

TEST_CASE("TrainPass: the loss scale is read when the stream gets there", "[examples][llama]") {
  SmallRun run(OneLayer(false), SmallOptions(DType::kF32));
  run.Train(SmallBatch());
  const auto once = run.optimizer.gradients();
  run.optimizer.ForgetGradients();
  const DeviceLoss loss;
  // Holds the stream until the pass has been enqueued.
  auto gate = std::make_shared<Gate>();
  bool open = false;
  Operation wait;
  wait.name = "hold";
  wait.gate = gate;
  wait.ready = [&open] { return open; };
  REQUIRE_OK(run.runner.stream().Enqueue(std::move(wait)));
  REQUIRE_OK(TrainPass(run.optimizer, *run.model, run.runner.stream(), Pass::kTrain, SmallBatch(),
                       loss.data()));
  run.optimizer.set_loss_scale(4);
  {
    std::lock_guard<std::mutex> lock(gate->mutex);
    open = true;
  }
  gate->changed.notify_all();
  REQUIRE_OK(run.runner.stream().Synchronize());
  for (const auto& [name, values] : run.optimizer.gradients()) {
    Doubles want = once.at(name);
    for (double& value : want) value *= 4;
    CAPTURE(name);
    CHECK(values == want);
  }
}

}  // namespace
}  // namespace zero::llama
