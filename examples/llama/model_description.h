// The parameters of a LLaMA model, as units for the sharded optimizer.
#pragma once

#include "device/dtype.h"
#include "examples/llama/config.h"
#include "zero/model.h"

namespace zero::llama {

// Indices into Config::groups that DescribeModel gives to its parameters.
inline constexpr int kDecayedGroup = 0;    // matrices
inline constexpr int kUndecayedGroup = 1;  // one-dimensional parameters

// Places of the parameters in their units.
enum EmbeddingParameter { kEmbedTokens };
enum LayerParameter {
  kInputNorm,
  kQuery,
  kKey,
  kValue,
  kOutput,
  kPostAttentionNorm,
  kGate,
  kUp,
  kDown,
  kLayerParameters
};
enum HeadParameter { kFinalNorm, kLmHead };

// Unit 0 "embedding", units 1 ... L "layers.0" ... "layers.L-1", unit L + 1 "head"; parameters have
// the names and shapes ([out, in] for matrices) of Hugging Face files. Tied: the embedding is
// resident and has the alias "lm_head.weight"; the head holds only the norm.
Model DescribeModel(const LlamaConfig& config, DType dtype);

inline int EmbeddingUnit() { return 0; }
inline int LayerUnit(int64_t layer) { return static_cast<int>(layer) + 1; }
inline int HeadUnit(const LlamaConfig& config) { return LayerUnit(config.num_hidden_layers); }

// Standard deviation of the initial values: initializer_range for matrices; 0 for norms, which
// start at the constant 1.
float InitialDeviation(const LlamaConfig& config, const Parameter& parameter);

// Elements of all parameters; a tied head counts once.
int64_t ParameterCount(const LlamaConfig& config);

}  // namespace zero::llama
