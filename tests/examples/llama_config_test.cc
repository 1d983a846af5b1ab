#include "examples/llama/config.h"

#include <filesystem>
#include <fstream>

#include "examples/llama/model_description.h"
#include "tests/catch.h"

namespace zero::llama {
namespace {

// A config.json with `extra` members ("\"key\": value, ...") put in front of the usual ones: the
// later of two equal keys would win.
std::string ConfigText(const std::string& extra = "", const std::string& without = "") {
  std::string text = "{";
  for (const auto& [key, value] : {std::pair<std::string, std::string>{"vocab_size", "256"},
                                   {"hidden_size", "64"},
                                   {"intermediate_size", "96"},
                                   {"num_hidden_layers", "2"},
                                   {"num_attention_heads", "4"},
                                   {"max_position_embeddings", "128"}}) {
    if (key == without || extra.find("\"" + key + "\":") != std::string::npos) continue;
    text += "\"" + key + "\": " + value + ", ";
  }
  return text + (extra.empty() ? "\"use_cache\": true" : extra) + "}";
}

LlamaConfig Parse(const std::string& extra) {
  auto config = ParseConfig(ConfigText(extra), "test.json");
  REQUIRE_OK(config.status());
  return *config;
}

std::string Error(const std::string& text) {
  const auto config = ParseConfig(text, "test.json");
  CHECK(config.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(config.status().message()), ContainsSubstring("test.json"));
  return std::string(config.status().message());
}

TEST_CASE("Config: absent keys have Hugging Face's defaults", "[examples][llama]") {
  const LlamaConfig config = Parse("");
  CHECK(config.num_key_value_heads == 4);
  CHECK(config.head_dim == 16);
  CHECK(config.rms_norm_eps == 1e-6);
  CHECK(config.rope_theta == 10000);
  CHECK(config.rope == RopeScaling());
  CHECK(!config.tie_word_embeddings);
  CHECK(config.initializer_range == 0.02);
}

TEST_CASE("Config: given keys win over the defaults", "[examples][llama]") {
  const LlamaConfig config = Parse(
      R"("num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
         "tie_word_embeddings": true, "initializer_range": 0.04)");
  CHECK(config.num_key_value_heads == 2);
  CHECK(config.query_size() == 128);
  CHECK(config.key_value_size() == 64);
  CHECK(config.rms_norm_eps == 1e-5);
  CHECK(config.rope_theta == 500000);
  CHECK(config.tie_word_embeddings);
  CHECK(config.initializer_range == 0.04);
}

TEST_CASE("Config: the rotary settings are read in every spelling", "[examples][llama]") {
  const RopeScaling linear{RopeKind::kLinear, 4}, llama3{RopeKind::kLlama3, 32, 1, 4, 8192};
  CHECK(Parse(R"("rope_scaling": null)").rope == RopeScaling());
  CHECK(Parse(R"("rope_scaling": {"type": "linear", "factor": 4.0})").rope == linear);
  CHECK(Parse(R"("rope_scaling": {"rope_type": "linear", "type": "linear", "factor": 4})").rope ==
        linear);
  const std::string body =
      R"("rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192)";
  CHECK(Parse("\"rope_scaling\": {" + body + "}").rope == llama3);
  const LlamaConfig newer = Parse("\"rope_parameters\": {\"rope_theta\": 500000, " + body + "}");
  CHECK(newer.rope == llama3);
  CHECK(newer.rope_theta == 500000);
  CHECK(Parse(R"("rope_parameters": {"rope_theta": 1e6, "rope_type": "default"})").rope_theta ==
        1e6);
  CHECK(Parse(R"("rope_theta": 100000)").rope_theta == 100000);
}

TEST_CASE("Config: rotary settings that are not implemented or contradict are refused by name",
          "[examples][llama][errors]") {
  const auto error = [](const std::string& extra) { return Error(ConfigText(extra)); };
  CHECK_THAT(error(R"("rope_scaling": {"type": "dynamic", "factor": 2.0})"),
             ContainsSubstring("\"rope_scaling.type\" is \"dynamic\""));
  CHECK_THAT(error(R"("rope_parameters": {"rope_type": "yarn", "factor": 2.0})"),
             ContainsSubstring("\"rope_parameters.rope_type\" is \"yarn\""));
  CHECK_THAT(error(R"("rope_scaling": {"type": "linear"})"),
             ContainsSubstring("\"rope_scaling.factor\" is missing"));
  CHECK_THAT(error(R"("rope_scaling": {"type": "linear", "factor": 0.5})"),
             ContainsSubstring("\"rope_scaling.factor\" is 0.5; it must be a number, at least 1"));
  CHECK_THAT(error(R"("rope_scaling": "linear")"), ContainsSubstring("must be an object"));
  CHECK_THAT(error(R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                      "high_freq_factor": 1, "original_max_position_embeddings": 8192})"),
             ContainsSubstring("\"rope_scaling.high_freq_factor\" is 1; it must be above"));
  CHECK_THAT(error(R"("rope_theta": 10000, "rope_parameters": {"rope_theta": 500000})"),
             ContainsSubstring("differ"));
  CHECK_THAT(error(R"("rope_theta": 0)"), ContainsSubstring("\"rope_theta\" is 0"));
}

TEST_CASE("Config: keys that change the arithmetic are refused by name",
          "[examples][llama][errors]") {
  const auto error = [](const std::string& extra) { return Error(ConfigText(extra)); };
  CHECK_THAT(error(R"("hidden_act": "gelu")"),
             ContainsSubstring("\"hidden_act\" is \"gelu\"; it must be \"silu\""));
  CHECK_THAT(error(R"("attention_bias": true)"), ContainsSubstring("\"attention_bias\" is true"));
  CHECK_THAT(error(R"("mlp_bias": true)"), ContainsSubstring("\"mlp_bias\" is true"));
  CHECK_THAT(error(R"("sliding_window": 64)"),
             ContainsSubstring("\"sliding_window\" is 64; it must be null or at least"));
  CHECK_THAT(error(R"("quantization_config": {"bits": 4})"),
             ContainsSubstring("\"quantization_config\""));
  CHECK_THAT(error(R"("model_type": "qwen2")"), ContainsSubstring("\"model_type\" is \"qwen2\""));
  CHECK_THAT(error(R"("attention_dropout": 0.1)"), ContainsSubstring("\"attention_dropout\""));
  // Before anything that such a model has no key for.
  CHECK_THAT(Error(R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768})"),
             ContainsSubstring("\"model_type\" is \"gpt2\"; it must be \"llama\""));
  CHECK_THAT(error(R"("architectures": ["LlamaForSequenceClassification"])"),
             ContainsSubstring("\"architectures\" is [\"LlamaForSequenceClassification\"]"));
  CHECK_THAT(error(R"("model_type": "mistral", "sliding_window": 64)"),
             ContainsSubstring("\"sliding_window\" is 64; it must be null or at least"));
  // What transformers takes where the key is missing.
  CHECK_THAT(Error(ConfigText(R"("model_type": "mistral", "max_position_embeddings": 8192)",
                              "max_position_embeddings")),
             ContainsSubstring("\"sliding_window\" is missing, which means 4096 in a mistral"));
}

TEST_CASE("Config: a mistral without a window is a llama and that is noted", "[examples][llama]") {
  const LlamaConfig mistral =
      Parse(R"("model_type": "mistral", "architectures": ["MistralForCausalLM"],
               "max_position_embeddings": 8192, "sliding_window": null)");
  REQUIRE(mistral.notes.size() == 1);
  CHECK_THAT(mistral.notes[0], ContainsSubstring("mistral without a sliding window"));
  CHECK(Parse(R"("model_type": "llama", "architectures": ["LlamaForCausalLM"])").notes.empty());
}

TEST_CASE("Config: the same keys pass where they change nothing", "[examples][llama]") {
  Parse(R"("hidden_act": "silu", "attention_bias": false, "mlp_bias": false,
           "attention_dropout": 0.0, "quantization_config": null)");
  Parse(R"("sliding_window": null)");
  Parse(R"("sliding_window": 128)");
  Parse(R"("sliding_window": 64, "use_sliding_window": false)");
  Parse(R"("model_type": "mistral", "badwordsids": null, "eos_token_id": [1, 2])");
}

TEST_CASE("Config: wrong sizes name the key, the value and what would be right",
          "[examples][llama][errors]") {
  const auto error = [](const std::string& extra) { return Error(ConfigText(extra)); };
  CHECK_THAT(Error(ConfigText("", "hidden_size")),
             ContainsSubstring("key \"hidden_size\" is missing"));
  CHECK_THAT(error(R"("vocab_size": 0)"), ContainsSubstring("\"vocab_size\" is 0"));
  CHECK_THAT(error(R"("num_hidden_layers": -2)"), ContainsSubstring("\"num_hidden_layers\" is -2"));
  CHECK_THAT(error(R"("hidden_size": "64")"), ContainsSubstring("\"hidden_size\" is \"64\""));
  CHECK_THAT(error(R"("hidden_size": 64.5)"), ContainsSubstring("\"hidden_size\" is 64.5"));
  CHECK_THAT(error(R"("hidden_size": 18446744073709551615)"), ContainsSubstring("whole number"));
  CHECK_THAT(error(R"("hidden_size": 66)"),
             ContainsSubstring("must be divisible by num_attention_heads (4)"));
  CHECK_THAT(error(R"("num_attention_heads": 7, "hidden_size": 56, "num_key_value_heads": 2)"),
             ContainsSubstring("\"num_key_value_heads\" is 2; it must divide"));
  CHECK_THAT(error(R"("head_dim": 5)"), ContainsSubstring("head_dim is 5; it must be even"));
  CHECK_THAT(error(R"("tie_word_embeddings": 1)"), ContainsSubstring("true or false"));
  CHECK_THAT(error(R"("rms_norm_eps": -1)"), ContainsSubstring("\"rms_norm_eps\" is -1"));
}

TEST_CASE("Config: text that is not JSON is reported with its place", "[examples][llama][errors]") {
  CHECK_THAT(Error("{\"vocab_size\": 256,\n\"hidden_size\" 64}"), ContainsSubstring("line 2"));
  CHECK_THAT(Error("{\"vocab_size\": 256,\n\"hidden_size\" 64}"), ContainsSubstring("at byte 36"));
  CHECK_THAT(Error("[1]"), ContainsSubstring("one JSON object"));
  CHECK_THAT(Error(""), ContainsSubstring("not JSON"));
  CHECK_THAT(Error("{\"vocab_size\": 1e999}"), ContainsSubstring("not JSON"));
  CHECK_THAT(Error("{\"model_type\": \"\xFF\"}"), ContainsSubstring("not JSON"));
}

TEST_CASE("Config: a file, its folder, and what is missing", "[examples][llama][errors]") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("llama_config_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  const auto none = ReadConfig(folder.string());
  CHECK_THAT(std::string(none.status().message()), ContainsSubstring("no config.json"));
  const auto missing = ReadConfig((folder / "other.json").string());
  CHECK_THAT(std::string(missing.status().message()), ContainsSubstring("no such file"));
  std::ofstream(folder / "config.json") << ConfigText();
  CHECK_OK(ReadConfig(folder.string()).status());
  CHECK_OK(ReadConfig((folder / "config.json").string()).status());
  std::filesystem::remove_all(folder);
}

TEST_CASE("Config: writing keeps unknown keys and reads back as the same model",
          "[examples][llama]") {
  const LlamaConfig config = Parse(
      R"("badwordsids": [7, {"a": null}], "rope_theta": 100000, "torch_dtype": "float16",
         "rope_scaling": {"type": "linear", "factor": 4.0})");
  const auto text = ToJson(config, DType::kBF16);
  REQUIRE_OK(text.status());
  CHECK_THAT(*text, ContainsSubstring("\"badwordsids\""));
  CHECK_THAT(*text, ContainsSubstring("\"rope_theta\": 100000,"));
  CHECK_THAT(*text, ContainsSubstring("\"type\": \"linear\""));
  CHECK_THAT(*text, ContainsSubstring("\"torch_dtype\": \"bfloat16\""));
  CHECK_THAT(*text, ContainsSubstring("\"LlamaForCausalLM\""));
  const auto again = ParseConfig(*text, "again");
  REQUIRE_OK(again.status());
  CHECK(again->rope == config.rope);
  CHECK(again->hidden_size == config.hidden_size);
  CHECK(*ToJson(*again, DType::kBF16) == *text);
}

TEST_CASE("Config: a config made by hand is written whole", "[examples][llama]") {
  LlamaConfig config;
  config.vocab_size = 256;
  config.hidden_size = 64;
  config.intermediate_size = 96;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.rope = {RopeKind::kLlama3, 32, 1, 4, 8192};
  config.tie_word_embeddings = true;
  REQUIRE_OK(CompleteConfig(config));
  const auto again = ParseConfig(*ToJson(config, DType::kF32), "again");
  REQUIRE_OK(again.status());
  CHECK(again->rope == config.rope);
  CHECK(again->tie_word_embeddings);
  CHECK(again->head_dim == 16);
  CHECK(ParameterCount(*again) == ParameterCount(config));
}

TEST_CASE("Model: units, names, shapes and groups are those of Hugging Face files",
          "[examples][llama]") {
  LlamaConfig config = Parse(R"("num_key_value_heads": 2)");
  const Model model = DescribeModel(config, DType::kBF16);
  REQUIRE(model.units.size() == 4);
  CHECK(model.units[0].name == "embedding");
  CHECK(!model.units[0].resident);
  CHECK(model.units[2].name == "layers.1");
  CHECK(model.units[3].name == "head");
  CHECK(HeadUnit(config) == 3);
  const Unit& layer = model.units[LayerUnit(1)];
  REQUIRE(layer.parameters.size() == kLayerParameters);
  CHECK(layer.parameters[kKey].name == "model.layers.1.self_attn.k_proj.weight");
  CHECK(layer.parameters[kKey].shape == std::vector<int64_t>{32, 64});
  CHECK(layer.parameters[kDown].name == "model.layers.1.mlp.down_proj.weight");
  CHECK(layer.parameters[kDown].shape == std::vector<int64_t>{64, 96});
  CHECK(layer.parameters[kPostAttentionNorm].name ==
        "model.layers.1.post_attention_layernorm.weight");
  CHECK(layer.parameters[kPostAttentionNorm].group == kUndecayedGroup);
  CHECK(layer.parameters[kQuery].group == kDecayedGroup);
  CHECK(model.units[3].parameters[kFinalNorm].name == "model.norm.weight");
  CHECK(model.units[3].parameters[kLmHead].name == "lm_head.weight");
  CHECK(InitialDeviation(config, layer.parameters[kQuery]) == 0.02f);
  CHECK(InitialDeviation(config, layer.parameters[kInputNorm]) == 0);

  const int64_t untied = ParameterCount(config);
  config.tie_word_embeddings = true;
  const Model tied = DescribeModel(config, DType::kBF16);
  CHECK(tied.units[0].resident);
  CHECK(tied.units[0].parameters[0].aliases == std::vector<std::string>{"lm_head.weight"});
  CHECK(tied.units[3].parameters.size() == 1);
  CHECK(ParameterCount(config) == untied - 256 * 64);
}

TEST_CASE("Model: the known sizes of published models", "[examples][llama]") {
  LlamaConfig config;
  config.vocab_size = 32000;
  config.hidden_size = 4096;
  config.intermediate_size = 11008;
  config.num_hidden_layers = 32;
  config.num_attention_heads = 32;
  REQUIRE_OK(CompleteConfig(config));
  CHECK(ParameterCount(config) == 6'738'415'616);  // Llama 2 7B
}

}  // namespace
}  // namespace zero::llama
