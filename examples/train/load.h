// A model from a Hugging Face folder with one file of weights.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/dtype.h"
#include "examples/llama/config.h"
#include "io/safetensors.h"
#include "zero/model.h"
#include "zero/sharded_optimizer.h"

namespace zero::train {

struct SavedModel {
  llama::LlamaConfig config;
  SafetensorsFile weights;
  DType dtype = DType::kF32;  // of a rank's weights: bf16 where the file's are, else fp32
  Model model;                // with nothing trainable: no gradients, no states
};

// Opens `folder`/config.json and model.safetensors and holds them against each other.
// kInvalidArgument names the file and a tensor that is missing, unknown, or of another shape than
// the keys of config.json say.
absl::StatusOr<SavedModel> OpenModelFolder(const std::string& folder);

// Gives Write(State::kWeight) the values of `saved`, which must live longer.
Source SourceOf(const SavedModel& saved);

}  // namespace zero::train
