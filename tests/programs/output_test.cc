// What zero-train --output writes.
#include <sys/mount.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "io/weight_folder.h"
#include "tests/catch.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

namespace fs = std::filesystem;

std::map<std::string, std::string> Tensors(const std::string& folder) {
  const auto files = WeightFolder::Open(folder);
  REQUIRE_OK(files.status());
  std::map<std::string, std::string> contents;
  for (const auto& [name, tensor] : files->tensors()) {
    std::string& bytes = contents[name];
    bytes.resize(static_cast<size_t>(tensor.bytes()));
    REQUIRE_OK(files->ReadBytes(name, 0, absl::MakeSpan(bytes.data(), bytes.size())));
  }
  return contents;
}

std::string DTypeOf(const std::string& folder) {
  const auto files = WeightFolder::Open(folder);
  REQUIRE_OK(files.status());
  return files->tensors().at("model.norm.weight").dtype;
}

nlohmann::json ConfigOf(const std::string& folder) {
  return nlohmann::json::parse(ReadFile(folder + "/config.json"));
}

TEST_CASE("zero-train --output: weights in several files are those in one", "[programs]") {
  const TrainingFolder folder;
  const std::string one = folder.File("one"), several = folder.File("several");
  const Outcome first = folder.Train({"--output", one, "--ranks=3"});
  REQUIRE(first.status == 0);
  CHECK_THAT(first.out, ContainsSubstring("saved to " + one + ": 21 tensors, ") &&
                            ContainsSubstring(" bytes in 1 file\n"));
  const Outcome second = folder.Train({"--output", several, "--ranks=3", "--max_shard_size=8KB"});
  REQUIRE(second.status == 0);
  CHECK_THAT(second.out, ContainsSubstring(" files\n"));
  CHECK(Tensors(one) == Tensors(several));
  CHECK(ReadFile(one + "/config.json") == ReadFile(several + "/config.json"));
  const auto files = WeightFolder::Open(several);
  CHECK(files->path() == several + "/model.safetensors.index.json");
  CHECK(files->files().size() > 3);
  CHECK(files->notes().empty());
  // Both programs take it.
  const Outcome sample = RunProgram("zero-sample", {"--model", several, "--tokens=3"});
  CHECK(sample.status == 0);
  CHECK(sample.out == RunProgram("zero-sample", {"--model", one, "--tokens=3"}).out);
  const std::string again = folder.File("again");
  REQUIRE(folder.Train({"--model", several, "--output", again, "--learning_rate=0", "--steps=1"})
              .status == 0);
  CHECK(Tensors(again) == Tensors(one));
  CHECK_FALSE(fs::exists(again + "/model.safetensors.index.json"));
  // Over the many files.
  REQUIRE(folder.Train({"--output", several, "--ranks=3"}).status == 0);
  CHECK(ReadFile(several + "/model.safetensors") == ReadFile(one + "/model.safetensors"));
  CHECK(std::distance(fs::directory_iterator(several), fs::directory_iterator()) == 2);
}

TEST_CASE("zero-train --output_dtype: says what is written and config.json says so too",
          "[programs]") {
  const TrainingFolder folder;
  const std::string exact = folder.File("exact");
  REQUIRE(folder.Train({"--output", exact, "--dtype=fp32"}).status == 0);
  CHECK(DTypeOf(exact) == "F32");
  CHECK(ConfigOf(exact)["torch_dtype"] == "float32");
  const auto save = [&](const char* dtype) {
    const std::string path = folder.File(dtype);
    const Outcome outcome =
        folder.Train({"--model", exact, "--dtype=bf16", "--learning_rate=0", "--steps=1",
                      "--ranks=2", "--output", path, absl::StrCat("--output_dtype=", dtype)});
    INFO(outcome.err);
    REQUIRE(outcome.status == 0);
    return path;
  };
  const std::string automatic = save("auto");
  CHECK(DTypeOf(automatic) == "BF16");
  CHECK(ConfigOf(automatic)["torch_dtype"] == "bfloat16");
  CHECK(Tensors(save("bf16")) == Tensors(automatic));
  // The masters of a bf16 run.
  const std::string masters = save("fp32");
  CHECK(Tensors(masters) == Tensors(exact));
  CHECK(ConfigOf(masters)["torch_dtype"] == "float32");
  const std::string half = save("fp16");
  CHECK(DTypeOf(half) == "F16");
  CHECK(ConfigOf(half)["torch_dtype"] == "float16");
}

TEST_CASE("zero-train --output: config.json keeps unknown keys and a tokenizer is copied",
          "[programs]") {
  const TrainingFolder folder;
  const std::string model = folder.File("model");
  fs::create_directory(model);
  auto config = nlohmann::json::parse(SmallConfig(false));
  config["badwordsids"] = {{1, 2}, {3}};
  config["auto_map"]["x"] = "y";
  config["dtype"] = "float32";
  WriteFile(model + "/config.json", config.dump());
  const std::map<std::string, std::string> others = {{"tokenizer.json", "{\"a\": 1}"},
                                                     {"tokenizer.model", std::string("\0\1", 2)},
                                                     {"generation_config.json", "{}"}};
  for (const auto& [name, text] : others) WriteFile(model + "/" + name, text);
  const std::string output = folder.File("output");
  // Random weights: there are none in the folder.
  REQUIRE(folder.Train({"--model", model, "--output", output, "--ranks=2"}).status == 0);
  const auto saved = ConfigOf(output);
  CHECK(saved["badwordsids"] == config["badwordsids"]);
  CHECK(saved["auto_map"] == config["auto_map"]);
  CHECK(saved["dtype"] == "bfloat16");
  CHECK_FALSE(saved.contains("torch_dtype"));
  for (const auto& [name, text] : others) CHECK(ReadFile(output + "/" + name) == text);
  // A file: nothing but that file is the model.
  const std::string alone = folder.File("alone");
  REQUIRE(folder.Train({"--model", model + "/config.json", "--output", alone}).status == 0);
  CHECK_FALSE(fs::exists(alone + "/tokenizer.json"));
}

TEST_CASE("zero-train --output: the key that forbids whole weights is told before the run",
          "[programs]") {
  const TrainingFolder folder;
  WriteFile(
      folder.File("ds.json"),
      R"({"train_batch_size": 1, "zero_optimization": {"stage3_gather_16bit_weights_on_model_save": false,
                                      "stage": "auto"}})");
  const std::string output = folder.File("output");
  const std::vector<std::string> flags = {
      "--config", folder.File("ds.json"), "--model",   folder.model(),
      "--data",   folder.data(),          "--steps=1", "--output",
      output};
  const auto run = [&](const char* stage) {
    std::vector<std::string> all = flags;
    all.push_back(stage);
    return RunProgram("zero-train", all);
  };
  const Outcome refused = run("--stage=3");
  CHECK(refused.status == 2);
  CHECK(refused.out.empty());
  CHECK(LinesOf(refused.err) == 1);
  CHECK_THAT(refused.err,
             ContainsSubstring("--output") &&
                 ContainsSubstring("stage3_gather_16bit_weights_on_model_save is false"));
  CHECK_FALSE(fs::exists(output));
  CHECK(run("--stage=2").status == 0);
  CHECK(fs::exists(output + "/model.safetensors"));
}

TEST_CASE("zero-train --output: a folder that holds what the run reads or writes is refused",
          "[programs]") {
  const TrainingFolder folder;
  const std::string output = folder.File("output");
  fs::create_directory(output);
  for (const char* name : {"model-00001-of-00002.safetensors", "model.safetensors.index.json",
                           "model.safetensors", "config.json"}) {
    const std::string text = output + "/" + name;
    WriteFile(text, ReadFile(folder.data()));
    const Outcome data = folder.Train({"--data", text, "--output", output});
    CHECK(data.status == 2);
    CHECK_THAT(data.err, ContainsSubstring("--output would write over '" + text + "' of --data"));
    fs::remove(text);
    const Outcome metrics = folder.Train({"--metrics", text, "--output", output});
    CHECK(metrics.status == 2);
    CHECK_THAT(metrics.err,
               ContainsSubstring("--output would write over '" + text + "' of --metrics"));
  }
}

TEST_CASE("zero-train --output: a disk that is full is one line and leaves the old model",
          "[programs]") {
  const TrainingFolder folder;
  const std::string disk = folder.File("disk");
  fs::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
    WARN("skipped: no file system can be mounted here");
    return;
  }
  const Outcome small = folder.Train({"--output", disk, "--ranks=2"});
  const std::string before = ReadFile(disk + "/model.safetensors");
  const Outcome full = folder.Train({"--output", disk, "--ranks=2", "--output_dtype=fp32"});
  const std::string after = ReadFile(disk + "/model.safetensors");
  const auto names = std::distance(fs::directory_iterator(disk), fs::directory_iterator());
  umount(disk.c_str());
  CHECK(small.status == 0);
  CHECK(before.size() > 30'000);
  INFO(full.err);
  CHECK(full.status == 1);
  CHECK(LinesOf(full.err) == 1);
  CHECK_THAT(full.err, ContainsSubstring("zero-train: rank ") && ContainsSubstring(disk) &&
                           ContainsSubstring("No space left on device"));
  CHECK(full.err.find(": rank ") == full.err.rfind(": rank "));
  CHECK(after == before);
  CHECK(names == 2);
}

}  // namespace
}  // namespace zero::programs
