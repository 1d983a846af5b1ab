// A model of odd sizes with what it takes to run it.
#pragma once

#include <memory>
#include <vector>

#include "examples/llama/model.h"
#include "examples/llama/model_description.h"
#include "examples/llama/train_pass.h"
#include "tests/examples/plain_optimizer.h"
#include "tests/examples/reference_model.h"
#include "tests/examples/tensor.h"

namespace zero::llama {

inline LlamaConfig SmallConfig(int64_t heads = 4, int64_t kv_heads = 2, bool tied = false) {
  LlamaConfig config;
  config.vocab_size = 11;
  config.hidden_size = heads == 9 ? 36 : 24;
  config.intermediate_size = 37;
  config.num_hidden_layers = 3;
  config.num_attention_heads = heads;
  config.num_key_value_heads = kv_heads;
  config.tie_word_embeddings = tied;
  REQUIRE_OK(CompleteConfig(config));
  return config;
}

// Two rows of 7 tokens; two targets are ignored.
inline Batch SmallBatch(unsigned seed = 1) {
  std::mt19937 generator(seed);
  Batch batch;
  for (int i = 0; i < 14; ++i) {
    batch.tokens.push_back(static_cast<int32_t>(generator() % 11));
    batch.targets.push_back(i == 3 || i == 13 ? -1 : static_cast<int32_t>(generator() % 11));
  }
  batch.valid_tokens = 12;
  return batch;
}

inline LlamaModel::Options SmallOptions(DType dtype) {
  LlamaModel::Options options;
  options.micro_batch = 2;
  options.sequence_length = 7;
  options.dtype = dtype;
  return options;
}

inline void CheckGradients(const reference::Parameters& got, const reference::Parameters& want,
                           DType dtype, double fp32 = 5e-6, double bf16 = 6e-2) {
  REQUIRE(got.size() == want.size());
  for (const auto& [name, values] : want) CheckNear(name, got.at(name), values, dtype, fp32, bf16);
}

struct SmallRun {
  SmallRun(const LlamaConfig& config, const LlamaModel::Options& options)
      : optimizer(DescribeModel(config, options.dtype), 100) {
    auto created = LlamaModel::Create(config, options, &runner.device());
    REQUIRE_OK(created.status());
    model = *std::move(created);
  }
  ~SmallRun() { runner.stream().Synchronize().IgnoreError(); }
  LossSum Train(const Batch& batch) {
    const DeviceLoss loss;
    runner.Run(TrainPass(optimizer, *model, runner.stream(), Pass::kTrainLast, batch, loss.data()));
    return loss.get();
  }

  Runner runner;
  PlainOptimizer optimizer;
  std::unique_ptr<LlamaModel> model;
};

}  // namespace zero::llama
