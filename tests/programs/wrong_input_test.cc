#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/catch.h"
#include "tests/programs/refusal.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

TEST_CASE("zero-train: a wrong flag is one line and exit status 2", "[programs]") {
  const TrainingFolder folder;
  const auto refused = [&](const std::vector<std::string>& flags,
                           const std::vector<std::string>& words) {
    folder.CheckRefused(flags, 2, words);
  };
  refused({"--ranks", "0"}, {"--ranks is '0'", "from 1"});
  refused({"--stage=4"}, {"--stage is '4'", "from 0 to 3"});
  refused({"--stage=-1"}, {"--stage is '-1'", "from 0 to 3"});
  refused({"--micro_batch=0"}, {"--micro_batch is '0'", "from 1"});
  refused({"--accumulation=0"}, {"--accumulation is '0'"});
  refused({"--steps=0"}, {"--steps is '0'"});
  refused({"--steps=many"}, {"--steps is 'many'"});
  refused({"--learning_rate=2e-5x"}, {"--learning_rate is '2e-5x'"});
  refused({"--learning_rate=nan"}, {"--learning_rate is 'nan'"});
  refused({"--dtype=fp64"}, {"--dtype is 'fp64'", "fp32 or bf16 or fp16"});
  refused({"--dtype=fp32", "--accumulation_dtype=bf16"}, {"--accumulation_dtype", "fp32"});
  refused({"--dtype=fp32", "--master=split"}, {"--master is 'split'", "--dtype fp32", "fp32"});
  refused({"--dtype=fp16", "--master=none"}, {"--master is 'none'", "bf16"});
  refused({"--config="}, {"--config is empty"});
  refused({"--momentum=0.9"}, {"--momentum is given, but has no effect", "sgd"});
  refused({"--optimizer=sgd", "--beta2=0.9"}, {"--beta2", "adamw, adam or lion"});
  refused({"--optimizer=lion", "--epsilon=1e-6"}, {"--epsilon", "adamw or adam"});
  refused({"--loss_scaling=grad_scaler"}, {"--loss_scaling", "no effect", "--dtype fp16"});
  refused({"--dtype=fp16", "--loss_scale=8", "--loss_scaling=dynamic"}, {"without --loss_scale"});
  refused(
      {"--dtype=fp16", "--check_overflow=false"},
      {"--check_overflow is false", "--loss_scale is 0", "--dtype fp16", "--loss_scale above 0"});
  refused({"--cycles=5"}, {"--cycles", "--schedule restarts"});
  refused({"--stage=1", "--prefetch=2"}, {"--prefetch is given, but has no effect", "--stage 3"});
  refused({"--max_shard_size=0"}, {"--max_shard_size is '0'", "2GiB"});
  refused({"--max_shard_size=5XB"}, {"--max_shard_size is '5XB'"});
  refused({"--output_dtype=int8"}, {"--output_dtype is 'int8'", "auto or fp32 or bf16 or fp16"});
  refused({"--output=", "--max_shard_size=1"}, {"--max_shard_size", "--output"});
  refused({"--output=", "--output_dtype=fp32"}, {"--output_dtype", "--output"});
  refused({"--repeats=5"}, {"--repeats", "--compare_stages"});
  refused({"--evaluate_batches=3"}, {"--evaluate_batches", "--evaluate_every"});
  refused({"--dtype=fp16", "--accumulation_dtype=bf16"},
          {"--accumulation_dtype is 'bf16'", "fp32 or fp16"});
  refused({"--loss_scale=-1"}, {"--loss_scale is '-1'"});
  refused({"--device=gpu"}, {"--device is 'gpu'", "host or cuda"});
  refused({"--cuda_device=3"}, {"--cuda_device is 3, but --device is host"});
  refused({"--cuda_device=-2"}, {"--cuda_device is '-2'", "from -1"});
  refused({"--sequence_length=33"}, {"--sequence_length is 33", "max_position_embeddings (32)"});
  refused({"--shuffle=maybe"}, {"--shuffle is 'maybe'", "true or false"});
  refused({"--micro_bach=2"}, {"'--micro_bach'", "--micro_batch"});
  refused({"--model="}, {"--model is missing"});
  refused({"--data="}, {"--data is missing"});
  refused({"--compare_stages"}, {"--output", "--compare_stages"});
  refused({"--evaluate_data", folder.data()}, {"--evaluate_data", "--evaluate_every"});
  refused({"--reduction=native"}, {"--reduction is 'native'", "--device cuda", "ordered or auto"});
  refused({"--reduction=native", "--device=cuda"}, {"--reduction is 'native'", "launcher"});
  refused({"loose"}, {"'loose'"});
}

TEST_CASE("zero-train: without a usable GPU one line says so and names the host",
          "[programs][errors]") {
  const TrainingFolder folder;
  REQUIRE(setenv("CUDA_VISIBLE_DEVICES", "", 1) == 0);
  folder.CheckRefused({"--device=cuda"}, 1, {"CUDA", "--device host"});
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_CASE("zero-train: a wrong data file is one line and exit status 1", "[programs]") {
  const TrainingFolder folder;
  WriteFile(folder.File("empty"), "");
  WriteFile(folder.File("short"), "sixteen letters!");
  const auto refused = [&](const std::string& data, const std::vector<std::string>& words) {
    folder.CheckRefused({"--data", data}, 1, words);
  };
  refused(folder.File("absent"), {"--data", "absent"});
  refused(folder.File("empty"), {"--data", "empty", "is empty"});
  refused(folder.File(""), {"--data", "folder"});
  refused(folder.File("short"), {"--data", "short", "16 bytes", "17"});
  folder.CheckRefused({"--evaluate_every=1", "--evaluate_data", folder.File("short")}, 1,
                      {"--evaluate_data", "short"});
}

TEST_CASE("zero-train: a wrong model is one line and exit status 1", "[programs]") {
  const TrainingFolder folder;
  const std::string config = ReadFile(folder.model());
  const auto refused = [&](const std::string& from, const std::string& to,
                           const std::vector<std::string>& words) {
    CAPTURE(to);
    std::string changed = config;
    REQUIRE(changed.find(from) != std::string::npos);
    WriteFile(folder.File("config.json"), changed.replace(changed.find(from), from.size(), to));
    folder.CheckRefused({}, 1, words);
  };
  const std::string hidden = "\"hidden_size\": 24,";
  refused(hidden, "", {"--model", "config.json", "hidden_size", "missing"});
  refused(hidden, "\"hidden_size\": \"24\",", {"hidden_size"});
  refused(hidden, "\"hidden_size\": 25,", {"hidden_size", "25", "num_attention_heads (3)"});
  refused("\"num_attention_heads\": 3,\n \"num_key_value_heads\": 1",
          "\"num_attention_heads\": 7, \"head_dim\": 4, \"num_key_value_heads\": 2",
          {"num_key_value_heads", "2", "num_attention_heads (7)"});
  refused("\"vocab_size\": 256", "\"vocab_size\": 100", {"vocab_size", "100", "256"});
  refused("{", "", {"config.json", "JSON"});
  folder.CheckRefused({"--model", folder.File("absent")}, 1, {"--model", "absent"});
  std::filesystem::create_directory(folder.File("folder"));
  folder.CheckRefused({"--model", folder.File("folder")}, 1, {"--model", "config.json"});
}

TEST_CASE("zero-train: a file of weights as the model is answered with its folder", "[programs]") {
  const TrainingFolder folder;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    WriteFile(folder.File(name), "{}");
    folder.CheckRefused({"--model", folder.File(name)}, 1,
                        {"--model: ", name, "is a file of weights; give the folder that holds it"});
  }
}

TEST_CASE("zero-train: a pipe as a configuration is refused and not waited for", "[programs]") {
  const TrainingFolder folder;
  const std::string pipe = folder.File("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  folder.CheckRefused({"--config", pipe}, 1, {"pipe: is no regular file"});
  folder.CheckRefused({"--config", "/dev/zero"}, 1, {"/dev/zero: is no regular file"});
  folder.CheckRefused({"--model", pipe}, 1, {"--model: ", "pipe: is no regular file"});
}

TEST_CASE("zero-train: a run that this machine has no memory for is one line and nothing else",
          "[programs]") {
  const TrainingFolder folder;
  WriteFile(folder.File("large.json"),
            R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 1048576,
 "intermediate_size": 1048576, "num_hidden_layers": 4, "num_attention_heads": 8192,
 "num_key_value_heads": 8192, "max_position_embeddings": 32})");
  for (const char* more : {"--stage=3", "--compare_stages"}) {
    const Outcome outcome = folder.Train({"--model", folder.File("large.json"), "--ranks=8", more});
    INFO(outcome.err);
    CHECK(outcome.status == 1);
    CHECK(outcome.out.empty());
    CHECK(LinesOf(outcome.err) == 1);
    CHECK_THAT(outcome.err, ContainsSubstring("8 ranks x ") && ContainsSubstring("this machine"));
  }
}

TEST_CASE("zero-train: an output that cannot be written is refused before the first step",
          "[programs]") {
  const TrainingFolder folder;
  WriteFile(folder.File("file"), "");
  std::filesystem::create_directories(folder.File("taken/model.safetensors"));
  for (const std::string& output : {folder.File("file"), folder.File("file/below"),
                                    std::string("/proc/zero/out"), folder.File("taken")}) {
    CAPTURE(output);
    const Outcome outcome = folder.Train({"--output", output});
    CHECK(outcome.out.empty());
    folder.CheckRefused({"--output", output}, 1, {"--output", output});
  }
}

TEST_CASE("zero-train: metrics that cannot be written are refused before the first step",
          "[programs]") {
  const TrainingFolder folder;
  for (const std::string& metrics : {folder.File(""), folder.File("absent/metrics.jsonl")}) {
    CAPTURE(metrics);
    CHECK(folder.Train({"--metrics", metrics}).out.empty());
    folder.CheckRefused({"--metrics", metrics}, 1, {"--metrics", metrics});
  }
}

TEST_CASE("zero-train: what a run reads is not written over, whatever the path to it",
          "[programs]") {
  const TrainingFolder folder;
  const std::string text = folder.File("input.txt");
  { std::ofstream(text) << std::string(5000, 'a'); }
  std::filesystem::create_directory(folder.File("run"));
  std::filesystem::copy_file(text, folder.File("run/config.json"));
  std::filesystem::create_symlink(text, folder.File("link.txt"));
  const auto refused = [&](const std::vector<std::string>& flags, const std::string& words) {
    CAPTURE(flags);
    const auto before = folder.Names();
    CheckRefused(folder.Train(flags), 2, {words});
    CHECK(folder.Names() == before);
    CHECK(std::filesystem::file_size(text) == 5000);
  };
  refused({"--data", text, "--metrics", text}, "--metrics would write over");
  refused({"--data", text, "--metrics", folder.File("run/../input.txt")}, "of --data");
  refused({"--data", text, "--metrics", folder.File("link.txt")}, "of --data");
  refused({"--data", folder.File("run/config.json"), "--output", folder.File("run")}, "of --data");
  refused(
      {"--data", text, "--output", folder.File("new"), "--metrics", folder.File("new/config.json")},
      "of --metrics");
}

TEST_CASE("zero-train: a run that fails leaves earlier files as they were", "[programs]") {
  const TrainingFolder folder;
  WriteFile(folder.File("metrics.jsonl"), "kept\n");
  folder.CheckRefused({"--data", folder.File("absent")}, 1, {"absent"});
  folder.CheckRefused({"--output", "/proc/zero/out"}, 1, {"--output"});
  CHECK(ReadFile(folder.File("metrics.jsonl")) == "kept\n");
}

}  // namespace
}  // namespace zero::programs
