#include "examples/llama/config.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"

namespace zero::llama {
namespace {

using Json = nlohmann::ordered_json;

absl::Status Wrong(const std::string& file, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", why));
}

// Reads keys of one JSON object and keeps the first error. `path` names an inner object.
class Reader {
 public:
  Reader(const Json& object, std::string file, std::string path = "")
      : object_(object), file_(std::move(file)), path_(std::move(path)) {}

  // Null counts as absent, as in Python's from_pretrained.
  const Json* Find(const std::string& key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  void Count(const std::string& key, int64_t& value, bool required) {
    const Json* json = Find(key);
    if (json == nullptr) {
      if (required) Fail(absl::StrCat("key \"", path_, key, "\" is missing; it must be a count"));
      return;
    }
    constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
    if (!json->is_number_integer() || json->get<int64_t>() < 1 || json->get<int64_t>() > kLimit) {
      return Mismatch(key, absl::StrCat("a whole number from 1 to ", kLimit));
    }
    value = json->get<int64_t>();
  }

  void Number(const std::string& key, double& value, double least, bool required = false) {
    const Json* json = Find(key);
    if (json == nullptr) {
      if (required) Fail(absl::StrCat("key \"", path_, key, "\" is missing; it must be a number"));
      return;
    }
    const double number = json->is_number() ? json->get<double>() : -1;
    if (!(number >= least) || !(number > 0)) {
      return Mismatch(key, least > 0 ? absl::StrCat("a number, at least ", least)
                                     : std::string("a number above 0"));
    }
    value = number;
  }

  void Flag(const std::string& key, bool& value) {
    const Json* json = Find(key);
    if (json == nullptr) return;
    if (!json->is_boolean()) return Mismatch(key, "true or false");
    value = json->get<bool>();
  }

  void Text(const std::string& key, std::string& value) {
    const Json* json = Find(key);
    if (json == nullptr) return;
    if (!json->is_string()) return Mismatch(key, "a string");
    value = json->get<std::string>();
  }

  // Refuses a key that is there and does not have the one value that is implemented.
  void MustBe(const std::string& key, const Json& only) {
    const Json* json = Find(key);
    if (json != nullptr && *json != only)
      Mismatch(key, only.dump() + "; others are not implemented");
  }

  void Mismatch(const std::string& key, const std::string& right) {
    const Json* json = Find(key);
    Fail(absl::StrCat("key \"", path_, key, "\" is ", json != nullptr ? json->dump() : "null",
                      "; it must be ", right));
  }

  void Fail(const std::string& why) {
    if (status_.ok()) status_ = Wrong(file_, why);
  }
  const absl::Status& status() const { return status_; }

 private:
  const Json& object_;
  const std::string file_, path_;
  absl::Status status_;
};

// One of the two spellings of the rotary settings: an object under `key`.
absl::Status ReadRope(const Json& json, const std::string& file, const std::string& key,
                      RopeScaling& rope, double& theta) {
  if (!json.is_object()) return Wrong(file, absl::StrCat("key \"", key, "\" must be an object"));
  Reader reader(json, file, key + ".");
  std::string kind = "default";
  reader.Text("type", kind);
  reader.Text("rope_type", kind);
  reader.Number("rope_theta", theta, 0);
  reader.MustBe("partial_rotary_factor", 1.0);
  if (kind == "linear") {
    rope.kind = RopeKind::kLinear;
    reader.Number("factor", rope.factor, 1, true);
  } else if (kind == "llama3") {
    rope.kind = RopeKind::kLlama3;
    reader.Number("factor", rope.factor, 1, true);
    reader.Number("low_freq_factor", rope.low_freq_factor, 0, true);
    reader.Number("high_freq_factor", rope.high_freq_factor, 0, true);
    reader.Count("original_max_position_embeddings", rope.original_max_position_embeddings, true);
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      reader.Mismatch("high_freq_factor", "above low_freq_factor");
    }
  } else if (kind != "default") {
    reader.Mismatch(reader.Find("rope_type") != nullptr ? "rope_type" : "type",
                    "\"default\", \"linear\" or \"llama3\"; others are not implemented");
  }
  return reader.status();
}

absl::Status ReadAllRope(const Json& json, const std::string& file, LlamaConfig& config) {
  Reader reader(json, file);
  reader.Number("rope_theta", config.rope_theta, 0);
  ZERO_RETURN_IF_ERROR(reader.status());
  const Json* scaling = reader.Find("rope_scaling");
  const Json* parameters = reader.Find("rope_parameters");
  if (scaling != nullptr) {
    ZERO_RETURN_IF_ERROR(ReadRope(*scaling, file, "rope_scaling", config.rope, config.rope_theta));
  }
  if (parameters == nullptr) return absl::OkStatus();
  RopeScaling rope;
  double theta = config.rope_theta;
  ZERO_RETURN_IF_ERROR(ReadRope(*parameters, file, "rope_parameters", rope, theta));
  if (scaling != nullptr && rope != config.rope) {
    return Wrong(file, "keys \"rope_scaling\" and \"rope_parameters\" differ; keep one of them");
  }
  if (reader.Find("rope_theta") != nullptr && theta != config.rope_theta) {
    return Wrong(file, absl::StrCat("keys \"rope_theta\" (", config.rope_theta,
                                    ") and \"rope_parameters.rope_theta\" (", theta,
                                    ") differ; keep one of them"));
  }
  config.rope = rope;
  config.rope_theta = theta;
  return absl::OkStatus();
}

constexpr const char* kMistral = "mistral";

// Models of another kind, which lack keys of this one or mean other things by them.
absl::Status RefuseOtherModels(const Json& json, const std::string& file, std::string& model_type) {
  Reader reader(json, file);
  model_type = "llama";
  reader.Text("model_type", model_type);
  if (model_type != "llama" && model_type != kMistral) {
    reader.Mismatch("model_type", "\"llama\" or \"mistral\"; others are not implemented");
  }
  const Json* architectures = reader.Find("architectures");
  const Json causal = {"LlamaForCausalLM", "MistralForCausalLM"};
  if (architectures != nullptr && architectures->is_array() && !architectures->empty() &&
      std::find_first_of(architectures->begin(), architectures->end(), causal.begin(),
                         causal.end()) == architectures->end()) {
    reader.Mismatch("architectures",
                    "[\"LlamaForCausalLM\"] or [\"MistralForCausalLM\"]; others are not "
                    "implemented");
  }
  return reader.status();
}

// Settings that change the arithmetic in ways that are not implemented.
absl::Status RefuseOthers(const Json& json, const std::string& file, const std::string& model_type,
                          const LlamaConfig& config) {
  Reader reader(json, file);
  for (const char* activation : {"hidden_act", "hidden_activation"}) {
    reader.MustBe(activation, "silu");
  }
  for (const char* flag : {"attention_bias", "mlp_bias", "rope_interleaved"}) {
    reader.MustBe(flag, false);
  }
  reader.MustBe("attention_dropout", 0);
  reader.MustBe("partial_rotary_factor", 1.0);
  if (reader.Find("quantization_config") != nullptr) {
    reader.Mismatch("quantization_config", "absent: quantised weights are not implemented");
  }
  bool windowed = true;
  int64_t window = config.max_position_embeddings;
  reader.Flag("use_sliding_window", windowed);
  if (windowed && model_type == kMistral && !json.contains("sliding_window")) {
    // Where its configuration says nothing it has a window all the same.
    constexpr int64_t kMistralWindow = 4096;
    if (kMistralWindow < config.max_position_embeddings) {
      reader.Fail(absl::StrCat(
          "key \"sliding_window\" is missing, which means ", kMistralWindow,
          " in a mistral; it must be null or at least max_position_embeddings (",
          config.max_position_embeddings, "): attention within a window is not implemented"));
    }
  }
  reader.Count("sliding_window", window, false);
  if (windowed && window < config.max_position_embeddings) {
    reader.Mismatch(
        "sliding_window",
        absl::StrCat("null or at least max_position_embeddings (", config.max_position_embeddings,
                     "): attention within a window is not implemented"));
  }
  return reader.status();
}

absl::StatusOr<LlamaConfig> ReadObject(const Json& json, const std::string& file) {
  LlamaConfig config;
  std::string model_type;
  ZERO_RETURN_IF_ERROR(RefuseOtherModels(json, file, model_type));
  Reader reader(json, file);
  reader.Count("vocab_size", config.vocab_size, true);
  reader.Count("hidden_size", config.hidden_size, true);
  reader.Count("intermediate_size", config.intermediate_size, true);
  reader.Count("num_hidden_layers", config.num_hidden_layers, true);
  reader.Count("num_attention_heads", config.num_attention_heads, true);
  reader.Count("num_key_value_heads", config.num_key_value_heads, false);
  reader.Count("head_dim", config.head_dim, false);
  reader.Count("max_position_embeddings", config.max_position_embeddings, false);
  reader.Number("rms_norm_eps", config.rms_norm_eps, 0);
  reader.Number("initializer_range", config.initializer_range, 0);
  reader.Flag("tie_word_embeddings", config.tie_word_embeddings);
  ZERO_RETURN_IF_ERROR(reader.status());
  ZERO_RETURN_IF_ERROR(ReadAllRope(json, file, config));
  ZERO_RETURN_IF_ERROR(RefuseOthers(json, file, model_type, config));
  if (model_type == kMistral) {
    config.notes.push_back("a mistral without a sliding window computes what a llama does");
  }
  ZERO_RETURN_IF_ERROR(CompleteConfig(config, file));
  return config;
}

// nlohmann_json throws; nothing may leave this file as an exception.
absl::StatusOr<Json> ParseObject(const std::string& text, const std::string& file) {
  try {
    Json json = Json::parse(text);
    if (!json.is_object()) return Wrong(file, "must hold one JSON object");
    return json;
  } catch (const Json::parse_error& error) {
    return Wrong(file, absl::StrCat("is not JSON at byte ", error.byte, ": ", error.what()));
  } catch (const Json::exception& error) {
    return Wrong(file, absl::StrCat("is not JSON: ", error.what()));
  }
}

// Leaves a value that means the same as it is written, such as 100000 for 100000.0.
template <class T>
void Set(Json& json, const char* key, const T& value) {
  if (!json.contains(key) || json[key] != Json(value)) json[key] = value;
}

Json RopeObject(const RopeScaling& rope) {
  if (rope.kind == RopeKind::kDefault) return nullptr;
  Json json;
  json["rope_type"] = rope.kind == RopeKind::kLinear ? "linear" : "llama3";
  json["factor"] = rope.factor;
  if (rope.kind == RopeKind::kLlama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
    json["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  }
  return json;
}

// Keeps the spelling of the file where it says what the config says.
void SetRope(Json& json, const LlamaConfig& config) {
  LlamaConfig written;
  if (ReadAllRope(json, "", written).ok() && written.rope == config.rope &&
      written.rope_theta == config.rope_theta &&
      (json.contains("rope_theta") || json.contains("rope_parameters"))) {
    return;
  }
  json.erase("rope_parameters");
  json["rope_theta"] = config.rope_theta;
  json["rope_scaling"] = RopeObject(config.rope);
}

}  // namespace

absl::StatusOr<LlamaConfig> ParseConfig(const std::string& json, const std::string& name) {
  ZERO_ASSIGN_OR_RETURN(const Json object, ParseObject(json, name));
  ZERO_ASSIGN_OR_RETURN(LlamaConfig config, ReadObject(object, name));
  config.json = json;
  return config;
}

absl::StatusOr<LlamaConfig> ReadConfig(const std::string& path) {
  std::error_code error;
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(file, error)) {
    file /= "config.json";
    if (!std::filesystem::exists(file, error)) {
      return Wrong(path, "the folder holds no config.json");
    }
  }
  if (!std::filesystem::exists(file, error)) return Wrong(path, "no such file");
  // A pipe would be waited for.
  if (!std::filesystem::is_regular_file(file, error)) {
    return Wrong(file.string(), "is no regular file");
  }
  if (file.extension() == ".safetensors" || absl::EndsWith(path, ".index.json")) {
    return Wrong(path, "is a file of weights; give the folder that holds it and config.json");
  }
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return Wrong(file.string(), "cannot be read");
  return ParseConfig(text.str(), file.string());
}

absl::Status CompleteConfig(LlamaConfig& config, const std::string& name) {
  const int64_t heads = config.num_attention_heads;
  for (const auto& [key, value] :
       {std::pair("vocab_size", config.vocab_size), std::pair("hidden_size", config.hidden_size),
        std::pair("intermediate_size", config.intermediate_size),
        std::pair("num_hidden_layers", config.num_hidden_layers),
        std::pair("num_attention_heads", heads)}) {
    if (value < 1) {
      return Wrong(name, absl::StrCat("key \"", key, "\" is ", value, "; it must be at least 1"));
    }
  }
  if (config.num_key_value_heads == 0) config.num_key_value_heads = heads;
  if (config.head_dim == 0) {
    if (config.hidden_size % heads != 0) {
      return Wrong(name, absl::StrCat("key \"hidden_size\" is ", config.hidden_size,
                                      "; without a \"head_dim\" it must be divisible by "
                                      "num_attention_heads (",
                                      heads, ")"));
    }
    config.head_dim = config.hidden_size / heads;
  }
  if (config.num_key_value_heads < 1 || heads % config.num_key_value_heads != 0) {
    return Wrong(name, absl::StrCat("key \"num_key_value_heads\" is ", config.num_key_value_heads,
                                    "; it must divide num_attention_heads (", heads, ")"));
  }
  if (config.head_dim < 2 || config.head_dim % 2 != 0) {
    return Wrong(name, absl::StrCat("head_dim is ", config.head_dim,
                                    "; it must be even: rotary embedding turns pairs"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ToJson(const LlamaConfig& config, DType dtype) {
  Json json = Json::object();
  if (!config.json.empty()) {
    ZERO_ASSIGN_OR_RETURN(json, ParseObject(config.json, "model config"));
  }
  const Reader reader(json, "model config");
  if (reader.Find("architectures") == nullptr) json["architectures"] = {"LlamaForCausalLM"};
  if (reader.Find("model_type") == nullptr) json["model_type"] = "llama";
  Set(json, "hidden_act", "silu");
  Set(json, "vocab_size", config.vocab_size);
  Set(json, "hidden_size", config.hidden_size);
  Set(json, "intermediate_size", config.intermediate_size);
  Set(json, "num_hidden_layers", config.num_hidden_layers);
  Set(json, "num_attention_heads", config.num_attention_heads);
  Set(json, "num_key_value_heads", config.num_key_value_heads);
  Set(json, "head_dim", config.head_dim);
  Set(json, "max_position_embeddings", config.max_position_embeddings);
  Set(json, "rms_norm_eps", config.rms_norm_eps);
  Set(json, "tie_word_embeddings", config.tie_word_embeddings);
  Set(json, "initializer_range", config.initializer_range);
  SetRope(json, config);
  const char* name = dtype == DType::kBF16  ? "bfloat16"
                     : dtype == DType::kF16 ? "float16"
                                            : "float32";
  Set(json, json.contains("dtype") && !json.contains("torch_dtype") ? "dtype" : "torch_dtype",
      name);
  return json.dump(2) + "\n";
}

}  // namespace zero::llama
