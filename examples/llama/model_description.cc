#include "examples/llama/model_description.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace zero::llama {
namespace {

Parameter Matrix(std::string name, int64_t out, int64_t in, DType dtype) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = {out, in};
  parameter.dtype = dtype;
  parameter.group = kDecayedGroup;
  return parameter;
}

Parameter Norm(std::string name, int64_t size, DType dtype) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = {size};
  parameter.dtype = dtype;
  parameter.group = kUndecayedGroup;
  return parameter;
}

// In the order of LayerParameter.
Unit LayerOf(const LlamaConfig& config, int64_t layer, DType dtype) {
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  const int64_t hidden = config.hidden_size;
  Unit unit;
  unit.name = absl::StrCat("layers.", layer);
  unit.parameters = {
      Norm(prefix + "input_layernorm.weight", hidden, dtype),
      Matrix(attention + "q_proj.weight", config.query_size(), hidden, dtype),
      Matrix(attention + "k_proj.weight", config.key_value_size(), hidden, dtype),
      Matrix(attention + "v_proj.weight", config.key_value_size(), hidden, dtype),
      Matrix(attention + "o_proj.weight", hidden, config.query_size(), dtype),
      Norm(prefix + "post_attention_layernorm.weight", hidden, dtype),
      Matrix(mlp + "gate_proj.weight", config.intermediate_size, hidden, dtype),
      Matrix(mlp + "up_proj.weight", config.intermediate_size, hidden, dtype),
      Matrix(mlp + "down_proj.weight", hidden, config.intermediate_size, dtype),
  };
  return unit;
}

}  // namespace

Model DescribeModel(const LlamaConfig& config, DType dtype) {
  Unit embedding;
  embedding.name = "embedding";
  embedding.parameters = {
      Matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size, dtype)};
  Unit head;
  head.name = "head";
  head.parameters = {Norm("model.norm.weight", config.hidden_size, dtype)};
  if (config.tie_word_embeddings) {
    embedding.resident = true;
    embedding.parameters[kEmbedTokens].aliases = {"lm_head.weight"};
  } else {
    head.parameters.push_back(
        Matrix("lm_head.weight", config.vocab_size, config.hidden_size, dtype));
  }

  Model model;
  model.units.push_back(std::move(embedding));
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    model.units.push_back(LayerOf(config, layer, dtype));
  }
  model.units.push_back(std::move(head));
  return model;
}

float InitialDeviation(const LlamaConfig& config, const Parameter& parameter) {
  return parameter.shape.size() > 1 ? static_cast<float>(config.initializer_range) : 0.0f;
}

int64_t ParameterCount(const LlamaConfig& config) {
  int64_t count = 0;
  for (const Unit& unit : DescribeModel(config, DType::kBF16).units) {
    for (const Parameter& parameter : unit.parameters) {
      int64_t elements = 1;
      for (const int64_t size : parameter.shape) elements *= size;
      count += elements;
    }
  }
  return count;
}

}  // namespace zero::llama
