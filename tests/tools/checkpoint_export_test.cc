// zero-checkpoint export.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "examples/llama/config.h"
#include "examples/llama/model_description.h"
#include "io/folder_lock.h"
#include "io/weight_folder.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/programs/refusal.h"
#include "tests/programs/subprocess.h"
#include "tests/zero/checkpoint_fixture.h"

namespace zero::programs {
namespace {

namespace fs = std::filesystem;

const std::string kConfig = R"({"model_type": "llama", "vocab_size": 32, "hidden_size": 16,
  "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4,
  "num_key_value_heads": 2, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "badwordsids": [1]})";

// A checkpoint of two ranks of the model of kConfig, in bf16.
void MakeCheckpoint(const std::string& folder, const Attributes& attributes = {}) {
  CheckpointManifest manifest = test::SmallCheckpoint(DType::kBF16);
  manifest.attributes = attributes;
  const auto states = manifest.parameters[0].states;
  manifest.parameters.clear();
  const auto config = llama::ParseConfig(kConfig, "config");
  REQUIRE_OK(config.status());
  for (const Unit& unit : llama::DescribeModel(*config, DType::kBF16).units) {
    for (const Parameter& parameter : unit.parameters) {
      manifest.parameters.push_back({parameter.name, unit.name, parameter.shape, DType::kBF16, true,
                                     parameter.aliases, states});
    }
  }
  test::CutIntoFiles(manifest, 2);
  REQUIRE_OK(test::WriteCheckpoint(folder, manifest));
}

Outcome Export(const std::string& checkpoint, const std::string& output,
               std::vector<std::string> flags = {}) {
  flags.insert(flags.begin(), {"export", checkpoint, "--output", output});
  return RunProgram("zero-checkpoint", flags);
}

nlohmann::json ConfigOf(const std::string& folder) {
  return nlohmann::json::parse(ReadFile(folder + "/config.json"));
}

TEST_CASE("zero-checkpoint export: writes the weights and copies what goes with them", "[tools]") {
  const TemporaryFolder folder;
  MakeCheckpoint(folder.File("checkpoint"));
  fs::create_directory(folder.File("model"));
  WriteFile(folder.File("model/config.json"), kConfig);
  WriteFile(folder.File("model/tokenizer.json"), "tokens");
  WriteFile(folder.File("model/model.safetensors"), "others");
  const Outcome outcome =
      Export(folder.File("checkpoint"), folder.File("out"), {"--copy_from", folder.File("model")});
  INFO(outcome.err);
  CHECK(outcome.status == 0);
  CHECK(outcome.err.empty());
  CHECK_THAT(outcome.out, ContainsSubstring(folder.File("out") + ": step 100, 11 tensors, "));
  CHECK_THAT(outcome.out, ContainsSubstring("in 1 file; config.json of " + folder.File("model")));

  const auto weights = WeightFolder::Open(folder.File("out"));
  REQUIRE_OK(weights.status());
  CHECK(weights->tensors().size() == 11);
  CHECK(weights->tensors().count("lm_head.weight") == 0);
  CHECK(weights->tensors().at("model.norm.weight").dtype == "BF16");
  std::vector<float> values(16);
  REQUIRE_OK(weights->Read("model.norm.weight", 0, absl::MakeSpan(values)));
  for (int64_t i = 0; i < 16; ++i) CHECK(values[i] == test::ExactValue("master", 10, i));
  CHECK(ReadFile(folder.File("out/tokenizer.json")) == "tokens");
  // Keys that nobody here knows stay.
  CHECK(ConfigOf(folder.File("out"))["torch_dtype"] == "bfloat16");
  CHECK(ConfigOf(folder.File("out"))["badwordsids"] == nlohmann::json({1}));
}

TEST_CASE("zero-checkpoint export: dtype and size of shards are chosen", "[tools]") {
  const TemporaryFolder folder;
  MakeCheckpoint(folder.File("checkpoint"), {{"model", kConfig}});
  const Outcome outcome = Export(folder.File("checkpoint"), folder.File("out"),
                                 {"--dtype=fp32", "--max_shard_size=4KB", "--json"});
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  const auto report = nlohmann::json::parse(outcome.out);
  CHECK(report["path"] == folder.File("out"));
  CHECK(report["step"] == 100);
  CHECK(report["tensors"] == 11);
  CHECK(report["files"] > 1);
  CHECK(report["config"] == true);
  const auto weights = WeightFolder::Open(folder.File("out"));
  REQUIRE_OK(weights.status());
  CHECK(report["files"] == weights->files().size());
  int64_t bytes = 0;
  for (const auto& [name, tensor] : weights->tensors()) {
    CHECK(tensor.dtype == "F32");
    bytes += tensor.bytes();
  }
  CHECK(report["bytes"] == bytes);
  // The checkpoint's own, with the dtype of the files.
  CHECK(ConfigOf(folder.File("out"))["torch_dtype"] == "float32");

  // The same folder again: what is not of the new model goes.
  REQUIRE(Export(folder.File("checkpoint"), folder.File("out"), {"--dtype=fp16"}).status == 0);
  const auto again = WeightFolder::Open(folder.File("out"));
  REQUIRE_OK(again.status());
  CHECK(again->tensors().at("model.norm.weight").dtype == "F16");
  CHECK(again->notes().empty());
  CHECK(ConfigOf(folder.File("out"))["torch_dtype"] == "float16");
}

TEST_CASE("zero-checkpoint export: that moments are not verified is said", "[tools]") {
  const TemporaryFolder folder;
  MakeCheckpoint(folder.File("checkpoint"));
  const Outcome outcome = Export(folder.File("checkpoint"), folder.File("out"));
  CHECK_THAT(outcome.out,
             ContainsSubstring("note: verified is what was read, the weights; moment1 and "
                               "moment2 are not, which zero-checkpoint inspect does\n"));
  const Outcome json = Export(folder.File("checkpoint"), folder.File("json"), {"--json"});
  CHECK(nlohmann::json::parse(json.out)["not_verified"] == nlohmann::json({"moment1", "moment2"}));
}

TEST_CASE("zero-checkpoint export: a config.json of another kind is copied as it is", "[tools]") {
  const TemporaryFolder folder;
  MakeCheckpoint(folder.File("checkpoint"));
  fs::create_directory(folder.File("model"));
  const std::string other = R"({"model_type": "gpt2"})";
  WriteFile(folder.File("model/config.json"), other);
  const Outcome outcome =
      Export(folder.File("checkpoint"), folder.File("out"), {"--copy_from", folder.File("model")});
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out, ContainsSubstring("note: config.json is copied as it is: "));
  CHECK(ReadFile(folder.File("out/config.json")) == other);
  const Outcome none = Export(folder.File("checkpoint"), folder.File("none"));
  CHECK(none.status == 0);
  CHECK_THAT(none.out, ContainsSubstring("no config.json, which --copy_from can give"));
  CHECK(!fs::exists(folder.File("none/config.json")));
}

TEST_CASE("zero-checkpoint export: what is wrong is one line and leaves nothing", "[tools]") {
  const TemporaryFolder folder;
  const std::string output = folder.File("out");
  const auto refused = [&](const Outcome& outcome, int status, const std::string& text) {
    CheckRefused(outcome, status, {text});
    CHECK(!fs::exists(output));
  };
  const std::string checkpoint = folder.File("checkpoints/step-00000100");
  MakeCheckpoint(checkpoint);
  refused(RunProgram("zero-checkpoint", {"export", checkpoint}), 2, "--output is missing");
  refused(Export(checkpoint, output, {"--max_shard_size=0"}), 2, "--max_shard_size is '0'");
  refused(Export(folder.File("checkpoints"), output), 1, "but its last one is " + checkpoint);
  refused(Export(folder.File("nothing"), output), 1, "no such folder; it must be a checkpoint");
  refused(Export(checkpoint, output, {"--copy_from", folder.File("nothing")}), 1,
          folder.File("nothing"));
  refused(Export(checkpoint, checkpoint + "/"), 1, "--output is the checkpoint itself");
  MakeCheckpoint(folder.File("checkpoints/step-00000200"));
  refused(Export(checkpoint, folder.File("checkpoints/step-00000200")), 1,
          "is a checkpoint, which");
  fs::remove_all(folder.File("checkpoints/step-00000200"));
  {
    fs::create_directory(folder.File("taken"));
    const auto lock = FolderLock::Take(folder.File("taken"));
    REQUIRE_OK(lock.status());
    refused(Export(checkpoint, folder.File("taken")), 1, "taken' is in use by process");
  }
  fs::create_directory(folder.File("model"));
  std::string other = kConfig;
  other.replace(other.find("24"), 2, "32");
  WriteFile(folder.File("model/config.json"), other);
  refused(Export(checkpoint, output, {"--copy_from", folder.File("model")}), 1,
          "config.json of " + folder.File("model") + ": describes another model than");
  const std::string file = checkpoint + "/rank-00001-of-00002.safetensors";
  std::string content = ReadFile(file);
  content.back() = static_cast<char>(content.back() ^ 1);
  WriteFile(file, content);
  refused(Export(checkpoint, output), 1, file);
}

}  // namespace
}  // namespace zero::programs
