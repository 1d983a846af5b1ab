#include "examples/train/generate.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "collectives/local_group.h"
#include "device/status.h"
#include "examples/llama/model.h"
#include "examples/llama/model_description.h"
#include "examples/llama/train_pass.h"
#include "examples/train/product_threads.h"

namespace zero::train {
namespace {

llama::LlamaModel::Options ModelOptions(const SavedModel& saved, int64_t window, int64_t threads,
                                        const Device& device) {
  llama::LlamaModel::Options options;
  options.micro_batch = 1;
  options.sequence_length = window;
  options.dtype = saved.dtype;
  options.training = false;
  options.product_threads = ProductThreads(threads, window, saved.config);
  if (device.kind() == DeviceKind::kCuda) {
    options.product_workspace_bytes = llama::CudaProducts::kWorkspaceBytes;
  }
  return options;
}

Config WeightsOnly() {
  Config config;
  config.stage = 0;
  config.groups.assign(2, {});  // those that DescribeModel names
  return config;
}

// The bytes of a text as tokens; a negative char is a byte above 127.
int32_t TokenOf(char c) { return static_cast<unsigned char>(c); }

}  // namespace

absl::Status Generate(const SavedModel& saved, const std::string& prompt, int64_t tokens,
                      Sampler& sampler, Device* device, int64_t threads,
                      const std::function<void(char)>& sink) {
  const int64_t window =
      std::min(saved.config.max_position_embeddings, static_cast<int64_t>(prompt.size()) + tokens);
  LocalWorld world(1);
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<llama::LlamaModel> model,
                        llama::LlamaModel::Create(
                            saved.config, ModelOptions(saved, window, threads, *device), device));
  ZERO_ASSIGN_OR_RETURN(
      const Buffer logits,
      device->Allocate(saved.config.vocab_size * 4, MemoryCategory::kOther, "logits of a token"));
  constexpr int64_t kBytes = llama::TokenDataset::kByteVocabulary * int64_t{sizeof(float)};
  ZERO_ASSIGN_OR_RETURN(
      const Buffer host,
      device->AllocateHost(kBytes, MemoryCategory::kHostStaging, "logits of bytes"));
  // After the buffers: its end waits for the work that uses them.
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device->CreateStream("sample"));
  ZERO_ASSIGN_OR_RETURN(
      const std::unique_ptr<ShardedOptimizer> weights,
      ShardedOptimizer::Create(WeightsOnly(), saved.model, device, world.group(0)));
  ZERO_RETURN_IF_ERROR(saved.weights.Load(*weights));

  std::vector<int32_t> text;
  for (const char c : prompt) text.push_back(TokenOf(c));
  std::vector<int32_t> seen(static_cast<size_t>(window));
  for (int64_t i = 0; i < tokens; ++i) {
    const auto count = std::min(static_cast<int64_t>(text.size()), window);
    std::fill(seen.begin(), seen.end(), 0);
    std::copy(text.end() - count, text.end(), seen.begin());
    ZERO_RETURN_IF_ERROR(
        llama::LogitsPass(*weights, *model, *stream, seen, count - 1, logits.as<float>()));
    ZERO_RETURN_IF_ERROR(device->Copy(*stream, host.data(), logits.data(), kBytes));
    ZERO_RETURN_IF_ERROR(stream->Synchronize());
    text.push_back(
        sampler.Draw(absl::MakeConstSpan(host.as<float>(), llama::TokenDataset::kByteVocabulary)));
    sink(static_cast<char>(text.back()));
  }
  return stream->Synchronize();
}

}  // namespace zero::train
