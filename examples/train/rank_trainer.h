// One rank of a training run.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/process_group.h"
#include "device/device.h"
#include "device/memory.h"
#include "device/stream.h"
#include "device/thread_pool.h"
#include "examples/llama/config.h"
#include "examples/llama/model.h"
#include "examples/llama/tokens.h"
#include "examples/train/checkpoints.h"
#include "examples/train/load.h"
#include "examples/train/options.h"
#include "examples/train/step_exchange.h"
#include "zero/plan.h"
#include "zero/sharded_optimizer.h"

namespace zero::train {

// What is known of a step when it has finished; the same on every rank but for the traffic.
struct StepReport {
  int64_t step = 0;  // 1, 2, ...
  double loss = 0;   // mean over the valid tokens of all ranks and micro-batches, in nats
  StepResult result;
  int64_t tokens = 0;
  double seconds = 0;     // since the step before finished; without evaluations
  MemoryTable memory;     // the most of any rank, by category
  WireBytes wire;         // sent by this rank, by name; the evaluation after the step included
  OffloadReport offload;  // of this rank, since the step before finished
  std::optional<double> evaluation_loss;
};

// What the ranks of a run share; nobody changes it while they run.
struct Job {
  Options options;
  llama::LlamaConfig model;
  const SavedWeights* weights = nullptr;  // that the run starts from; null: random ones
  const llama::TokenDataset* data = nullptr;
  const llama::TokenDataset* evaluation_data = nullptr;  // null where nothing is evaluated
  ThreadPool* pool = nullptr;
  // Where ranks are processes: that of the rank which this one runs. Null: ranks are threads.
  ProcessGroup* group = nullptr;
  int64_t cuda_device = 0;  // of all ranks of this process, where options.device is "cuda"

  // Called on rank 0's thread after each step, while the next one runs. May be empty.
  std::function<absl::Status(const StepReport&)> report;
  // Called on every rank's thread before each step; for tests. May be empty.
  std::function<absl::Status(int rank, int64_t step)> before_step;
  CheckpointJob checkpoints;
  // Gets rank 0's, or where ranks are processes this one's, before its thread ends; may be null.
  RunEnd* end = nullptr;
  // [collective] Called on every rank's thread after the last step, unless a signal stopped the run
  // before. May be empty.
  std::function<absl::Status(ShardedOptimizer&, int rank)> finish;
};

// Owns what one rank computes with. Driven by one thread.
class RankTrainer {
 public:
  // `job` and `group` must live longer.
  RankTrainer(const Job& job, ProcessGroup* group);
  // Waits for this rank's streams. After an error, abort the group first, or they wait for others.
  ~RankTrainer();

  // [collective] Allocates everything and sets the initial weights, or loads a checkpoint.
  absl::Status Initialise();
  // [collective] All steps, up to a signal. Once, after Initialise. kOutOfRange, on every rank: the
  // optimizer stopped the run, or every step was skipped while options.max_skips is not 0.
  absl::Status Run();

  ShardedOptimizer& optimizer() { return *optimizer_; }
  const RunEnd& end() const { return checkpoints_.end(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Flight {  // a step whose result has not arrived
    int64_t step = 0;
    Pending<StepResult> result;
    WireBytes wire;
  };

  absl::Status RunSteps();
  absl::Status SetInitialWeights();
  // [collective] What came while the run began is answered before its first step.
  absl::Status HearBeforeSteps();
  absl::Status EnqueueStep(int64_t step);
  // Waits for the result of the oldest step under way; for all that the `last` one does.
  absl::StatusOr<StepReport> TakeReport(bool last);
  // That a step has changed something.
  absl::Status CheckProgress() const;
  absl::StatusOr<double> Evaluate();
  absl::Status Report(const StepReport& report);
  // Bytes sent since the last call.
  WireBytes NewTraffic();

  const Job& job_;
  ProcessGroup* const group_;
  // In the order of construction: each uses those above it.
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<llama::LlamaModel> model_;
  std::unique_ptr<ShardedOptimizer> optimizer_;
  std::unique_ptr<StepExchange> exchange_;
  CheckpointKeeper checkpoints_;

  std::deque<Flight> flights_;
  bool applied_ = false;  // any step
  std::optional<StepReport> first_skip_;
  WireBytes traffic_;
  OffloadReport offload_;  // when the last step finished
  Clock::time_point last_finish_;
};

}  // namespace zero::train
