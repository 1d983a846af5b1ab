// zero-sample: continues a prompt with a byte-level LLaMA model.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "examples/llama/tokens.h"
#include "examples/support/flags.h"
#include "examples/support/program.h"
#include "examples/train/generate.h"
#include "examples/train/load.h"
#include "examples/train/rank_device.h"

namespace zero::train {
namespace {

constexpr const char* kProgram = "zero-sample";

struct SampleOptions {
  std::string model;
  std::string prompt = "In the beginning";
  int64_t tokens = 200;
  double temperature = 0.8;
  int64_t top_k = 40;
  int64_t seed = 0;
  std::string device = "host";
  int64_t cuda_device = -1;
  int64_t threads = 0;
};

void AddFlags(support::FlagTable& flags, SampleOptions& options) {
  constexpr int64_t kMost = 1'000'000'000;
  flags.AddText("model", &options.model, "FOLDER", "holds config.json and model.safetensors");
  flags.AddText("prompt", &options.prompt, "TEXT", "what to continue");
  flags.AddCount("tokens", &options.tokens, 1, kMost, "bytes to add");
  flags.AddNumber("temperature", &options.temperature, 0, 1000, "0: always the likeliest");
  flags.AddCount("top_k", &options.top_k, 0, kMost, "likeliest tokens to choose from; 0: all");
  flags.AddCount("seed", &options.seed, 0, kMost, "of the choices");
  AddDeviceFlags(flags, options.device, options.cuda_device, "what computes", "the first");
  flags.AddCount("threads", &options.threads, 0, 4096, "0: all processors");
}

absl::Status CheckOptions(SampleOptions& options) {
  if (options.model.empty()) {
    return absl::InvalidArgumentError(
        "--model is missing; it must name a folder with config.json and model.safetensors");
  }
  if (options.prompt.empty()) {
    return absl::InvalidArgumentError("--prompt is ''; it must hold at least one byte");
  }
  ZERO_RETURN_IF_ERROR(CheckDeviceFlags(options.device, options.cuda_device));
  ZERO_RETURN_IF_ERROR(support::CheckAlone());
  if (options.threads == 0) options.threads = std::max(1u, std::thread::hardware_concurrency());
  return absl::OkStatus();
}

absl::Status Run(const SampleOptions& options) {
  absl::StatusOr<SavedModel> saved = OpenModelFolder(options.model);
  if (!saved.ok()) {
    return absl::Status(saved.status().code(), absl::StrCat("--model: ", saved.status().message()));
  }
  if (saved->config.vocab_size < llama::TokenDataset::kByteVocabulary) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--model: ", options.model, ": key \"vocab_size\" is ", saved->config.vocab_size,
        "; bytes as tokens need at least ", llama::TokenDataset::kByteVocabulary));
  }
  ThreadPool pool(static_cast<int>(options.threads));
  const DeviceChoice choice{options.device, std::max<int64_t>(0, options.cuda_device)};
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, MakeDevice(choice, &pool));
  Sampler sampler(options.temperature, options.top_k, static_cast<uint64_t>(options.seed));
  bool begun = false;
  const auto print = [&](char c) {
    // Not before there is something to follow it: a failure prints its line alone.
    if (!begun) std::cout << options.prompt;
    begun = true;
    std::cout << c << std::flush;
  };
  const absl::Status status = Generate(*saved, options.prompt, options.tokens, sampler,
                                       device.get(), pool.threads(), print);
  if (begun) std::cout << std::endl;
  return status;
}

int Main(const std::vector<std::string>& arguments) {
  SampleOptions options;
  support::FlagTable flags;
  AddFlags(flags, options);
  absl::Status usage = flags.Parse(arguments);
  if (usage.ok() && flags.help()) {
    std::cout << "usage: " << kProgram << " --model FOLDER [flags]\n" << flags.Help();
    return 0;
  }
  if (usage.ok()) usage = CheckOptions(options);
  if (!usage.ok()) return support::Fail(kProgram, usage, support::kExitUsage);
  const absl::Status status = Run(options);
  return status.ok() ? 0 : support::Fail(kProgram, status, support::kExitFailure);
}

}  // namespace
}  // namespace zero::train

int main(int count, char** values) {
  return zero::train::Main(std::vector<std::string>(values + 1, values + count));
}
