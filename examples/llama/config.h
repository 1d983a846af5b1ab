// The shape of a LLaMA model, as a Hugging Face config.json gives it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/dtype.h"

namespace zero::llama {

enum class RopeKind : uint8_t { kDefault, kLinear, kLlama3 };

// How the rotary angles are stretched beyond the context that a model was first trained on.
struct RopeScaling {
  RopeKind kind = RopeKind::kDefault;
  double factor = 1;  // kLinear, kLlama3
  // kLlama3 only: wavelengths shorter than original / high keep their frequency, those longer than
  // original / low are slowed down by `factor`, between them a straight line.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;

  bool operator==(const RopeScaling&) const = default;
};

struct LlamaConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  RopeScaling rope;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;

  // The whole file as read, so that ToJson can write back what is not used here. May be empty.
  std::string json;
  // One-line remarks on what is read in another way than somebody might think.
  std::vector<std::string> notes;

  int64_t query_size() const { return num_attention_heads * head_dim; }
  int64_t key_value_size() const { return num_key_value_heads * head_dim; }
};

// Reads `path`: a config.json or the folder that holds one. Keys that would change the arithmetic
// in a way that is not implemented are refused by name; other unknown keys pass. kInvalidArgument
// names the file, the key, its value and what would be right.
absl::StatusOr<LlamaConfig> ReadConfig(const std::string& path);

// The same for JSON text; `name` stands for the file in messages.
absl::StatusOr<LlamaConfig> ParseConfig(const std::string& json, const std::string& name);

// For a config that a program filled in by hand: num_key_value_heads and head_dim that are 0 get
// their defaults, then the sizes are checked as in ReadConfig.
absl::Status CompleteConfig(LlamaConfig& config, const std::string& name = "model config");

// The text of a config.json: `config.json` with the fields above and the dtype of the weights set;
// everything else in it is kept.
absl::StatusOr<std::string> ToJson(const LlamaConfig& config, DType dtype);

}  // namespace zero::llama
