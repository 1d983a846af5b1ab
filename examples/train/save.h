// A trained model as a Hugging Face folder.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "examples/llama/config.h"
#include "zero/sharded_optimizer.h"

namespace zero::train {

// [collective] Gathers one parameter at a time; rank 0 writes `folder`/model.safetensors in the
// dtype of the weights, then config.json, each whole or not at all. Aliases are not written.
absl::Status SaveModel(ShardedOptimizer& optimizer, int rank, const llama::LlamaConfig& model,
                       const std::string& folder);

}  // namespace zero::train
