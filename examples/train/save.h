// A trained model as a Hugging Face folder.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "examples/llama/config.h"
#include "examples/train/options.h"
#include "zero/sharded_optimizer.h"

namespace zero::train {

// [collective] Writes --output as its flags say: the weights, the config.json of `model` with the
// dtype that was written, and where --model is a folder the other files of it, a tokenizer say.
absl::StatusOr<WeightsSaved> SaveModel(ShardedOptimizer& optimizer, const Options& options,
                                       const llama::LlamaConfig& model);

// "saved to <folder>: ...", one line.
std::string DescribeSaved(const Options& options, const WeightsSaved& saved);

}  // namespace zero::train
