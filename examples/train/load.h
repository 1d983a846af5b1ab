// A model from a Hugging Face folder.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/dtype.h"
#include "examples/llama/config.h"
#include "io/weight_folder.h"
#include "zero/model.h"
#include "zero/sharded_optimizer.h"

namespace zero::train {

// The weights of a folder that fill the model of `config`, each parameter exactly once.
class SavedWeights {
 public:
  // Opens the weights of `folder` and holds them against `config`. kInvalidArgument lists every
  // tensor that is missing, unknown, not floating-point, or of another shape than the keys of
  // config.json say. Buffers of rotary embeddings, which follow from config.json, are left out.
  static absl::StatusOr<SavedWeights> Open(const std::string& folder,
                                           const llama::LlamaConfig& config);

  // [collective] Sets the masters and weights of `optimizer`, whose model is that of `config`. Each
  // rank reads what it stores. kInvalidArgument names a value that is inf or NaN, in the file or in
  // the dtype of its weight.
  absl::Status Load(ShardedOptimizer& optimizer) const;

  // Elements of a parameter as they are in the files, exactly.
  absl::Status Read(const Parameter& parameter, int64_t first, absl::Span<float> out) const {
    return files_.Read(name_in_file_.at(parameter.name), first, out);
  }

  // bf16 or fp16 where all tensors used are, else fp32.
  DType dtype() const;
  const WeightFolder& files() const { return files_; }
  // How many tensors are used, of which types and bytes.
  std::string Summary() const;
  // What is left out, in one line; empty if nothing is.
  std::string Ignored() const;

 private:
  SavedWeights(std::string folder, WeightFolder files)
      : folder_(std::move(folder)), files_(std::move(files)) {}

  std::string folder_;
  WeightFolder files_;
  std::map<std::string, std::string> name_in_file_;  // of a parameter
  std::vector<std::string> ignored_;
};

struct SavedModel {
  llama::LlamaConfig config;
  SavedWeights weights;
  DType dtype = DType::kF32;  // of a rank's weights: SavedWeights::dtype
  Model model;                // with nothing trainable: no gradients, no states
};

// Opens config.json and the weights of `folder`. kInvalidArgument names the file and what is wrong.
absl::StatusOr<SavedModel> OpenModelFolder(const std::string& folder);

}  // namespace zero::train
