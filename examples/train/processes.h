// A run whose ranks are processes that a launcher has started.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/launcher.h"
#include "collectives/process_group.h"
#include "collectives/rendezvous.h"
#include "device/cuda_device.h"
#include "examples/llama/config.h"
#include "examples/llama/tokens.h"
#include "examples/train/load.h"
#include "examples/train/options.h"
#include "examples/train/rank_device.h"

namespace zero::train {

// Nothing where this process is alone: then ranks are its threads. kInvalidArgument: see
// ReadLaunch.
absl::StatusOr<std::optional<Launch>> ReadProcesses();

// What `options` must not say when a launcher has started several processes.
absl::Status CheckProcesses(const Options& options, const Launch& launch);

// What the flags must not ask of the groups that there will be: NCCL adds gradients only where
// ranks are processes on GPUs.
absl::Status CheckReduction(const Options& options, const std::optional<Launch>& launch);

// The GPU of this process, as CUDA numbers those that it sees: --cuda_device, else the local rank.
// A launcher counts the processes of one machine with it, and each gets a GPU; a rank counts those
// of all machines. Ranks that are threads share GPU 0.
int64_t CudaDeviceOf(const Options& options, const std::optional<Launch>& launch);

// Lines of key=value of everything that must be the same on every rank.
// `evaluation`: null where there is none.
std::string ConfigurationOf(const Options& options, const llama::LlamaConfig& model,
                            const SavedWeights* weights, const llama::TokenDataset& data,
                            const llama::TokenDataset* evaluation);

// Tells the others that this process cannot take part, so that they do not wait for it; some
// seconds at most.
void Decline(const Launch& launch, const absl::Status& why);

// This process's place among the ranks.
class Processes {
 public:
  // [collective] Meets the others: over Gloo where ranks compute on hosts, over NCCL where on GPUs.
  static absl::StatusOr<Processes> Join(const Launch& launch, const std::string& configuration,
                                        const DeviceChoice& device, absl::Duration deadline);

  ProcessGroup* group() const { return group_.get(); }
  // How the run of this rank ended. Tells the others if it failed, or leaves.
  absl::Status End(const absl::Status& status);

 private:
  Processes() = default;
  // In the order of construction.
  std::unique_ptr<Rendezvous> rendezvous_;
  std::unique_ptr<CudaDevice> cuda_device_;  // the group's own; the rank computes on another object
  std::unique_ptr<ProcessGroup> group_;
};

}  // namespace zero::train
