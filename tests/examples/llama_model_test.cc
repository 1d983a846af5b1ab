#include "examples/llama/model.h"

#include "tests/examples/reference_model.h"
#include "tests/examples/small_model.h"

namespace zero::llama {
namespace {

TEST_CASE("LlamaModel: loss and gradients are those of a plain model in double",
          "[examples][llama]") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const auto [heads, kv_heads] = GENERATE(std::pair(4, 2), std::pair(9, 3), std::pair(4, 4));
  LlamaConfig config = SmallConfig(heads, kv_heads, GENERATE(false, true));
  config.rope = GENERATE(RopeScaling{}, RopeScaling{RopeKind::kLinear, 4},
                         RopeScaling{RopeKind::kLlama3, 8, 1, 4, 64});
  CAPTURE(heads, kv_heads, config.tie_word_embeddings, Name(dtype));
  LlamaModel::Options options = SmallOptions(dtype);
  options.loss_factor = 0.125f;
  SmallRun run(config, options);
  run.optimizer.set_loss_scale(64);
  const Batch batch = SmallBatch();
  const LossSum loss = run.Train(batch);

  reference::Model model(config, 2, 7);
  const auto weights = run.optimizer.weights();
  const double want = model.Loss(weights, batch.tokens, batch.targets);
  CHECK(loss.loss == Approx(want).epsilon(dtype == DType::kF32 ? 1e-6 : 1e-2));
  CHECK(loss.tokens == 12);
  auto gradients = model.Gradients(weights, batch.tokens, batch.targets);
  for (auto& [name, values] : gradients) {
    for (double& value : values) value *= 8;
  }
  CheckGradients(run.optimizer.gradients(), gradients, dtype);
}

TEST_CASE("LlamaModel: the plain model's gradients are finite differences of its loss",
          "[examples][llama]") {
  const LlamaConfig config = SmallConfig(4, 2, GENERATE(false, true));
  const PlainOptimizer optimizer(DescribeModel(config, DType::kF32), 100);
  const Batch batch = SmallBatch();
  reference::Model model(config, 2, 7);
  reference::Parameters weights = optimizer.weights();
  model.Loss(weights, batch.tokens, batch.targets);
  const auto gradients = model.Gradients(weights, batch.tokens, batch.targets);
  for (auto& [name, values] : weights) {
    for (size_t i = 0; i < values.size(); i += values.size() / 3 + 1) {
      const double before = values[i];
      values[i] = before + 1e-5;
      const double above = model.Loss(weights, batch.tokens, batch.targets);
      values[i] = before - 1e-5;
      const double below = model.Loss(weights, batch.tokens, batch.targets);
      values[i] = before;
      CAPTURE(name, i);
      CHECK(gradients.at(name)[i] == Approx((above - below) / 2e-5).epsilon(1e-6).margin(1e-8));
    }
  }
}

TEST_CASE("LlamaModel: a second micro-batch adds its gradients to the first's",
          "[examples][llama]") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const LlamaConfig config = SmallConfig(4, 2, GENERATE(false, true));
  SmallRun run(config, SmallOptions(dtype));
  reference::Parameters want;
  for (const unsigned seed : {1, 2}) {
    const Batch batch = SmallBatch(seed);
    run.Train(batch);
    reference::Model model(config, 2, 7);
    model.Loss(run.optimizer.weights(), batch.tokens, batch.targets);
    for (auto& [name, values] :
         model.Gradients(run.optimizer.weights(), batch.tokens, batch.targets)) {
      want[name].resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) want[name][i] += values[i];
    }
  }
  CheckGradients(run.optimizer.gradients(), want, dtype);
}

TEST_CASE("LlamaModel: logits computed in pieces give the same loss and gradients",
          "[examples][llama]") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const LlamaConfig config = SmallConfig(4, 2, GENERATE(false, true));
  LlamaModel::Options options = SmallOptions(dtype);
  SmallRun whole(config, options);
  options.logits_bytes = GENERATE(1, 11 * 4 * 5);  // 1 row, 5 rows
  SmallRun pieces(config, options);
  const Batch batch = SmallBatch();
  CHECK(whole.Train(batch).loss == Approx(pieces.Train(batch).loss).epsilon(1e-6));
  CheckGradients(pieces.optimizer.gradients(), whole.optimizer.gradients(), dtype, 2e-6, 2e-2);
}

TEST_CASE("LlamaModel: a batch without targets has no loss and zero gradients",
          "[examples][llama]") {
  SmallRun run(SmallConfig(), SmallOptions(DType::kBF16));
  Batch batch = SmallBatch();
  batch.targets.assign(batch.targets.size(), -1);
  const LossSum loss = run.Train(batch);
  CHECK(loss.loss == 0);
  CHECK(loss.tokens == 0);
  for (const auto& [name, values] : run.optimizer.gradients()) {
    CAPTURE(name);
    CHECK(values == Doubles(values.size()));
  }
}

TEST_CASE("LlamaModel: evaluation gives the loss of training, with or without room for backward",
          "[examples][llama]") {
  const LlamaConfig config = SmallConfig(4, 2, GENERATE(false, true));
  LlamaModel::Options options = SmallOptions(DType::kF32);
  SmallRun train(config, options);
  const double want = train.Train(SmallBatch()).loss;
  options.training = GENERATE(true, false);
  SmallRun run(config, options);
  const DeviceLoss loss;
  run.runner.Run(
      EvaluatePass(run.optimizer, *run.model, run.runner.stream(), SmallBatch(), loss.data()));
  CHECK(loss.get().loss == want);
}

TEST_CASE("LlamaModel: logits of one position are those of the plain model", "[examples][llama]") {
  const LlamaConfig config = SmallConfig(4, 2, GENERATE(false, true));
  LlamaModel::Options options = SmallOptions(DType::kF32);
  options.training = GENERATE(true, false);
  const int64_t position = GENERATE(0, 3, 6);
  SmallRun run(config, options);
  const Batch batch = SmallBatch();
  Tensor logits(2 * 11, DType::kF32);
  run.runner.Run(LogitsPass(run.optimizer, *run.model, run.runner.stream(), batch.tokens, position,
                            logits.floats()));
  reference::Model model(config, 2, 7);
  model.Loss(run.optimizer.weights(), batch.tokens, batch.targets);
  Doubles want;
  for (const int64_t row : {0, 1}) {
    const auto first = model.logits().begin() + (row * 7 + position) * 11;
    want.insert(want.end(), first, first + 11);
  }
  CheckNear("logits", logits.values(), want, DType::kF32);
}

TEST_CASE("LlamaModel: allocates its activations once and accounts for them", "[examples][llama]") {
  const LlamaConfig config = SmallConfig();
  const LlamaModel::Options options = SmallOptions(DType::kBF16);
  SmallRun run(config, options);
  const auto used = [&] {
    return run.runner.device().memory()[static_cast<int>(MemoryCategory::kActivations)];
  };
  CHECK(used().current == LlamaModel::ActivationBytes(config, options));
  const int64_t allocations = run.runner.device().allocations();
  run.Train(SmallBatch());
  CHECK(run.runner.device().allocations() == allocations);
  run.model.reset();
  CHECK(used().current == 0);

  const std::unique_ptr<Device> small = NewTestDevice(nullptr);
  small->set_capacity(1000);
  const auto refused = LlamaModel::Create(config, options, small.get());
  CHECK(refused.status().code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("LlamaModel: a gradient that is not wanted is left alone", "[examples][llama]") {
  SmallRun run(SmallConfig(), SmallOptions(DType::kF32));
  run.Train(SmallBatch());
  std::vector<Tensor> weights, gradients;
  std::vector<const void*> weight_data;
  for (const Parameter& parameter : run.optimizer.model().units[LayerUnit(0)].parameters) {
    weights.emplace_back(run.optimizer.weights()[parameter.name], DType::kF32);
    gradients.emplace_back(weights.back().size(), DType::kF32);
  }
  std::vector<void*> gradient_data(weights.size(), nullptr);
  for (const Tensor& tensor : weights) weight_data.push_back(tensor.data());
  gradient_data[kUp] = gradients[kUp].data();
  run.runner.Run(
      run.model->BackwardLayer(run.runner.stream(), 0, weight_data, {gradient_data, false}));
  CHECK(!std::isnan(gradients[kUp].values()[0]));
  CHECK(std::isnan(gradients[kDown].values()[0]));
}

TEST_CASE("LlamaModel: ids outside of the vocabulary are named and enqueue nothing",
          "[examples][llama][errors]") {
  SmallRun run(SmallConfig(), SmallOptions(DType::kF32));
  Batch batch = SmallBatch();
  batch.tokens[9] = 11;
  const DeviceLoss loss;
  absl::Status status =
      TrainPass(run.optimizer, *run.model, run.runner.stream(), Pass::kTrain, batch, loss.data());
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), ContainsSubstring("token 11 in row 1 at position 2"));
  CHECK(run.optimizer.verbs.empty());
  batch.tokens[9] = -1;
  status = run.model->LoadBatch(run.runner.stream(), batch.tokens, batch.targets);
  CHECK_THAT(std::string(status.message()), ContainsSubstring("token -1"));
  batch = SmallBatch();
  batch.targets[0] = 12;
  status = run.model->LoadBatch(run.runner.stream(), batch.tokens, batch.targets);
  CHECK_THAT(std::string(status.message()), ContainsSubstring("target 12 in row 0 at position 0"));
  batch.tokens.pop_back();
  status = run.model->LoadBatch(run.runner.stream(), batch.tokens, batch.targets);
  CHECK_THAT(std::string(status.message()), ContainsSubstring("13 tokens and 14 targets for 14"));
}

TEST_CASE("LlamaModel: options and calls that make no sense are refused",
          "[examples][llama][errors]") {
  const Runner runner;
  const std::unique_ptr<Device> device = NewTestDevice(nullptr);
  const auto error = [&](LlamaModel::Options options) {
    const auto model = LlamaModel::Create(SmallConfig(), options, device.get());
    CHECK(model.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(model.status().message());
  };
  LlamaModel::Options options = SmallOptions(DType::kF16);
  options.loss_factor = 0;
  CHECK_THAT(error(options), ContainsSubstring("loss_factor is 0"));
  options = SmallOptions(DType::kF32);
  options.sequence_length = 4096;
  CHECK_THAT(error(options), ContainsSubstring("max_position_embeddings (2048)"));
  options = SmallOptions(DType::kF32);
  options.micro_batch = 0;
  CHECK_THAT(error(options), ContainsSubstring("micro_batch is 0"));

  options = SmallOptions(DType::kF32);
  options.training = false;
  SmallRun run(SmallConfig(), options);
  const DeviceLoss loss;
  CHECK(TrainPass(run.optimizer, *run.model, run.runner.stream(), Pass::kTrain, SmallBatch(),
                  loss.data())
            .code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(run.model->ForwardLayer(run.runner.stream(), 0, {}).message()),
             ContainsSubstring("0 pointers for the layer, which has 9"));
}

}  // namespace
}  // namespace zero::llama
