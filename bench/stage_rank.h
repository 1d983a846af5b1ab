// One stage on one rank, with a model that computes nothing: what `zero-bench stages` runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/buffer.h"
#include "device/host_device.h"
#include "zero/sharded_optimizer.h"

namespace zero::bench {

struct StageModel {
  int64_t units = 0;
  int64_t elements = 0;  // of each unit: one trainable parameter
  DType dtype = DType::kBF16;

  Model Make() const;
};

class StageRank {
 public:
  // AdamW; gradients are stored in the dtype in which they are written.
  static Config ConfigOf(const StageModel& model, int stage);
  // [C]
  static absl::StatusOr<std::unique_ptr<StageRank>> Create(const StageModel& model, int stage,
                                                           ThreadPool* pool, ProcessGroup* group,
                                                           int64_t checkpoint_memory = 0);
  // The same with any configuration and device.
  static absl::StatusOr<std::unique_ptr<StageRank>> Create(const StageModel& model,
                                                           const Config& config,
                                                           const HostDevice::Options& device,
                                                           ProcessGroup* group);

  // How long the trainer's stream waits at each unit, as for a device that computes: seconds.
  struct Compute {
    double forward = 0;
    double backward = 0;
  };
  // [C] One step of one micro-batch: forward acquires and releases every unit, backward fills each
  // gradient with a constant of step, unit and rank. Returns when it is enqueued, which waits if
  // two steps are under way.
  absl::StatusOr<Pending<StepResult>> EnqueueStep(const Compute& compute);
  // What the trainer's stream does in such a step and nothing else, waited for.
  absl::Status ComputeOnly(const Compute& compute);
  // [C] The same, waited for; `compute_seconds` in all, in the forward pass.
  absl::Status Step(double compute_seconds = 0);
  // Waits until all has run on this rank.
  absl::Status Finish() { return optimizer_->Finish(); }

  // [C] The whole weights of a unit.
  absl::StatusOr<std::vector<float>> Weights(int unit);

  // The group's barrier, waited for.
  absl::Status Meet();

  ShardedOptimizer& optimizer() { return *optimizer_; }
  MemoryTable memory() const { return device_.memory(); }
  const Plan& plan() const { return optimizer_->plan(); }

 private:
  StageRank(const StageModel& model, ProcessGroup* group, HostDevice::Options options)
      : model_(model), group_(group), device_(options) {}
  absl::Status Initialise(const Config& config);
  absl::Status EnqueueCompute(double seconds) const;

  const StageModel model_;
  ProcessGroup* const group_;
  HostDevice device_;
  Buffer scratch_;  // ComputeOnly's
  std::unique_ptr<ShardedOptimizer> optimizer_;
  std::unique_ptr<Stream> stream_;  // ends before the optimizer does
  int64_t steps_ = 0;
};

// The initial weight of an element; exact in bf16.
float InitialWeight(int64_t element);
Source InitialWeights();

// Bytes that one rank reads and writes in a step, the trainer's fill of the gradients included.
// What no implementation of the stage over these kernels could leave out; lines that are read only
// to be overwritten are not counted.
double MovedBytes(const Plan& plan);

}  // namespace zero::bench
