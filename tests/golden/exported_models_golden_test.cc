#include <cmath>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "collectives/local_group.h"
#include "device/host_device.h"
#include "examples/llama/model.h"
#include "examples/llama/train_pass.h"
#include "examples/train/load.h"
#include "io/safetensors.h"
#include "tests/catch.h"
#include "tests/golden/golden.h"
#include "tests/io/temporary_folder.h"
#include "tests/programs/subprocess.h"

namespace zero::golden {
namespace {

namespace fs = std::filesystem;

// Logits after each of the first `count` bytes of `text`, one row each.
std::vector<float> Logits(const std::string& folder, const std::string& text, int64_t count) {
  const auto saved = train::OpenModelFolder(folder);
  REQUIRE_OK(saved.status());
  REQUIRE(saved->dtype == DType::kF32);
  HostDevice device{HostDevice::Options()};
  llama::LlamaModel::Options options;
  options.sequence_length = count;
  options.dtype = saved->dtype;
  options.training = false;
  const auto model = llama::LlamaModel::Create(saved->config, options, &device);
  REQUIRE_OK(model.status());
  const int64_t vocabulary = saved->config.vocab_size;
  const auto row = device.Allocate(vocabulary * 4, MemoryCategory::kOther, "logits");
  REQUIRE_OK(row.status());
  const auto stream = device.CreateStream("logits");
  REQUIRE_OK(stream.status());
  LocalWorld world(1);
  Config config;
  config.groups.assign(2, {});
  const auto optimizer = ShardedOptimizer::Create(config, saved->model, &device, world.group(0));
  REQUIRE_OK(optimizer.status());
  REQUIRE_OK(saved->weights.Load(**optimizer));
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<unsigned char>(text.at(i));
  std::vector<float> logits;
  for (int64_t position = 0; position < count; ++position) {
    REQUIRE_OK(
        llama::LogitsPass(**optimizer, **model, **stream, tokens, position, row->as<float>()));
    REQUIRE_OK((*stream)->Synchronize());
    logits.insert(logits.end(), row->as<float>(), row->as<float>() + vocabulary);
  }
  return logits;
}

TEST_CASE("zero-train: a folder that it saved has transformers' logits") {
  const std::string variant = GENERATE("untied", "tied", "grouped");
  CAPTURE(variant);
  const std::string folder = Folder() + "/exported/" + variant;
  const auto golden = SafetensorsFile::Open(folder + ".safetensors");
  REQUIRE_OK(golden.status());
  const auto tensor = golden->Find("logits");
  REQUIRE_OK(tensor.status());
  std::vector<float> wanted(static_cast<size_t>((*tensor)->elements()));
  REQUIRE_OK(golden->Read("logits", 0, absl::MakeSpan(wanted)));
  const std::vector<float> logits =
      Logits(folder, ReadFile(Folder() + "/llama/tokens.txt"), (*tensor)->shape[0]);
  REQUIRE(logits.size() == wanted.size());
  double farthest = 0;
  double largest = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    farthest = std::max(farthest, std::abs(static_cast<double>(logits[i] - wanted[i])));
    largest = std::max(largest, std::abs(static_cast<double>(wanted[i])));
  }
  CHECK(largest > 1);
  CHECK(farthest <= 1e-5);
}

TEST_CASE("zero-train: a folder that it saved is saved again as it was") {
  const std::string variant = GENERATE("untied", "tied", "grouped");
  const std::string folder = Folder() + "/exported/" + variant;
  const TemporaryFolder temporary;
  const std::string output = temporary.File("output");
  const programs::Outcome outcome = programs::RunProgram(
      "zero-train", {"--model", folder, "--data", Folder() + "/llama/tokens.txt", "--dtype=fp32",
                     "--steps=1", "--learning_rate=0", "--sequence_length=16", "--ranks=2",
                     "--max_shard_size=9KB", "--output", output});
  INFO(variant << outcome.err);
  REQUIRE(outcome.status == 0);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    CAPTURE(name);
    CHECK(ReadFile(entry.path().string()) == ReadFile(output + "/" + name));
    ++files;
  }
  CHECK(files > 4);
  CHECK(std::distance(fs::directory_iterator(output), fs::directory_iterator()) == files);
}

}  // namespace
}  // namespace zero::golden
