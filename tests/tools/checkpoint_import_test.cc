// zero-checkpoint import.
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "device/status.h"
#include "examples/llama/config.h"
#include "examples/llama/model_description.h"
#include "io/folder_lock.h"
#include "io/safetensors.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/programs/refusal.h"
#include "tests/programs/subprocess.h"
#include "zero/save/checkpoint_reader.h"

namespace zero::programs {
namespace {

namespace fs = std::filesystem;

const std::string kConfig = R"({"model_type": "llama", "vocab_size": 32, "hidden_size": 16,
  "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "tie_word_embeddings": true})";

// bf16 bits; those of an inf for the last element of the norm where `infinite`.
uint16_t BitsOf(size_t tensor, int64_t element) {
  return static_cast<uint16_t>(0x3F00 + (tensor * 7 + static_cast<size_t>(element)) % 128);
}

// The weights of kConfig, and a buffer that no parameter needs.
void MakeFolder(const std::string& folder, bool infinite = false) {
  fs::create_directories(folder);
  WriteFile(folder + "/config.json", kConfig);
  const auto config = llama::ParseConfig(kConfig, "config");
  REQUIRE_OK(config.status());
  std::vector<SafetensorsTensor> tensors;
  for (const Unit& unit : llama::DescribeModel(*config, DType::kBF16).units) {
    for (const Parameter& parameter : unit.parameters) {
      tensors.push_back({parameter.name, "BF16", parameter.shape, 0, 0});
    }
  }
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "BF16", {2}, 0, 0});
  auto writer = SafetensorsWriter::Create(folder + "/model.safetensors", tensors);
  REQUIRE_OK(writer.status());
  for (size_t t = 0; t < tensors.size(); ++t) {
    std::vector<uint16_t> bits(static_cast<size_t>(tensors[t].elements()));
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = BitsOf(t, static_cast<int64_t>(i));
    if (infinite && tensors[t].name == "model.norm.weight") bits.back() = 0x7F80;
    REQUIRE_OK((*writer)->Append({reinterpret_cast<const char*>(bits.data()), bits.size() * 2}));
  }
  REQUIRE_OK((*writer)->Finish());
}

Outcome Import(const std::string& folder, const std::string& output,
               std::vector<std::string> flags = {}) {
  flags.insert(flags.begin(), {"import", folder, "--output", output});
  return RunProgram("zero-checkpoint", flags);
}

TEST_CASE("zero-checkpoint import: weights become masters, moments are zeros", "[tools]") {
  const TemporaryFolder folder;
  MakeFolder(folder.File("model"));
  const Outcome outcome = Import(folder.File("model"), folder.File("checkpoints"));
  INFO(outcome.err);
  CHECK(outcome.status == 0);
  CHECK(outcome.err.empty());
  const std::string path = folder.File("checkpoints/step-00000000");
  CHECK_THAT(outcome.out, ContainsSubstring(path + ": "));
  CHECK_THAT(outcome.out, ContainsSubstring(" parameters in bf16 with the states of adamw\n"));
  CHECK_THAT(outcome.out, ContainsSubstring("left out: 1 buffers of rotary embeddings"));

  auto reader = CheckpointReader::Open(path);
  REQUIRE_OK(reader.status());
  CHECK_OK(reader->Verify(nullptr));
  const CheckpointManifest& manifest = reader->manifest();
  CHECK(manifest.step == 0);
  CHECK(manifest.counts.loss_scale == 1);
  CHECK(manifest.world_size == 1);
  REQUIRE(manifest.parameters.size() == 20);
  CHECK(manifest.parameters[0].aliases == std::vector<std::string>{"lm_head.weight"});
  CHECK(manifest.parameters[1].unit == "layers.0");
  CHECK(manifest.parameters[10].unit == "layers.1");
  for (size_t p = 0; p < manifest.parameters.size(); ++p) {
    CHECK(manifest.parameters[p].trainable);
    CHECK(manifest.parameters[p].dtype == DType::kBF16);
    std::vector<float> values(static_cast<size_t>(ElementCount(manifest.parameters[p])));
    for (const char* state : {kMasterState, kMoment1State, kMoment2State}) {
      CHECK(manifest.parameters[p].states.at(state) == DType::kF32);
      REQUIRE_OK(reader->Read(p, state, 0, absl::MakeSpan(values)));
      bool same = true;
      for (size_t i = 0; i < values.size(); ++i) {
        const uint32_t bits = uint32_t{BitsOf(p, static_cast<int64_t>(i))} << 16;
        float wanted = 0;
        if (state == kMasterState) std::memcpy(&wanted, &bits, 4);
        same = same && values[i] == wanted;
      }
      CHECK(same);
    }
  }
}

TEST_CASE("zero-checkpoint import: flags choose dtype and states and loss scale", "[tools]") {
  const TemporaryFolder folder;
  MakeFolder(folder.File("model"));
  int number = 0;
  const auto import = [&](const std::vector<std::string>& flags) {
    const std::string output = folder.File(std::to_string(number++));
    std::vector<std::string> all = flags;
    all.push_back("--json");
    const Outcome outcome = Import(folder.File("model"), output, all);
    INFO(outcome.err);
    REQUIRE(outcome.status == 0);
    const auto report = nlohmann::json::parse(outcome.out);
    CHECK(report["path"] == output + "/step-00000000");
    const auto manifest = ReadManifest(report["path"].get<std::string>());
    REQUIRE_OK(manifest.status());
    CHECK(report["dtype"] == Name(manifest->parameters[0].dtype));
    return *manifest;
  };
  using States = std::map<std::string, DType>;
  CheckpointManifest manifest = import({"--dtype", "fp16", "--optimizer", "lion"});
  CHECK(manifest.parameters[0].dtype == DType::kF16);
  CHECK(manifest.optimizer == "lion");
  CHECK(manifest.counts.loss_scale == 65536);
  CHECK(manifest.parameters[0].states ==
        States{{kMasterState, DType::kF32}, {kMoment1State, DType::kF32}});
  manifest = import({"--dtype=fp32", "--optimizer=sgd", "--loss_scale=8"});
  CHECK(manifest.parameters[0].states == States{{kMasterState, DType::kF32}});
  CHECK(manifest.counts.loss_scale == 8);
  manifest = import({"--optimizer=sgd", "--momentum=0.9", "--master=none"});
  CHECK(manifest.parameters[0].states ==
        States{{kMasterState, DType::kBF16}, {kMoment1State, DType::kF32}});
  manifest = import({"--master=split"});
  CHECK(manifest.weight_rounding == "nearest_away");
}

TEST_CASE("zero-checkpoint import: what is wrong is one line and leaves nothing", "[tools]") {
  const TemporaryFolder folder;
  const std::string output = folder.File("checkpoints");
  const auto refused = [&](const Outcome& outcome, int status, const std::string& text) {
    CheckRefused(outcome, status, {text});
    CHECK(!fs::exists(output + "/step-00000000"));
  };
  refused(RunProgram("zero-checkpoint", {"import", "x"}), 2, "--output is missing");
  refused(Import("x", output, {"--optimizer=adamw", "--momentum=0.5"}), 2, "--momentum is for");
  refused(Import(folder.File("nothing"), output), 1,
          "no such folder; it must be a folder with config.json");
  MakeFolder(folder.File("model"));
  refused(Import(folder.File("model"), output, {"--dtype=fp32", "--master=none"}), 1,
          "--master is 'none'");
  refused(Import(folder.File("model"), folder.File("model/")), 1, "--output is FOLDER itself");
  fs::remove(folder.File("model/config.json"));
  refused(Import(folder.File("model"), output), 1, "config.json");
  CHECK(!fs::exists(output));
  MakeFolder(folder.File("infinite"), true);
  refused(Import(folder.File("infinite"), output), 1,
          "model.safetensors: parameter 'model.norm.weight': element 15 is");
  CHECK(!fs::exists(output));
  refused(Import(folder.File("infinite"), output + "/a/b"), 1, "element 15 is");
  CHECK(!fs::exists(output));
  fs::create_directory(output);
  refused(Import(folder.File("infinite"), output), 1, "element 15 is");
  CHECK(fs::is_empty(output));
}

TEST_CASE("zero-checkpoint import: a folder that a run works in is refused", "[tools]") {
  const TemporaryFolder folder;
  MakeFolder(folder.File("model"));
  fs::create_directories(folder.File("checkpoints"));
  {
    const auto lock = FolderLock::Take(folder.File("checkpoints"));
    REQUIRE_OK(lock.status());
    const Outcome outcome = Import(folder.File("model"), folder.File("checkpoints"));
    CHECK(outcome.status != 0);
    CHECK_THAT(outcome.err, ContainsSubstring("--output"));
    CHECK_THAT(outcome.err, ContainsSubstring("process"));
    CHECK_FALSE(fs::exists(folder.File("checkpoints") + "/step-00000000"));
  }
  CHECK(Import(folder.File("model"), folder.File("checkpoints")).status == 0);
}

TEST_CASE("zero-checkpoint import: a checkpoint is not replaced", "[tools]") {
  const TemporaryFolder folder;
  MakeFolder(folder.File("model"));
  CHECK(Import(folder.File("model"), folder.File("checkpoints")).status == 0);
  const Outcome inside = Import(folder.File("model"), folder.File("checkpoints/step-00000000"));
  CHECK(inside.status == 1);
  CHECK_THAT(inside.err, ContainsSubstring("--output: '" + folder.File("checkpoints") +
                                           "/step-00000000' is a checkpoint"));
  const Outcome again = Import(folder.File("model"), folder.File("checkpoints"));
  CHECK(again.status == 1);
  CHECK_THAT(again.err, ContainsSubstring("step-00000000: exists; it must be removed first"));
}

}  // namespace
}  // namespace zero::programs
