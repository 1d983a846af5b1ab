// The checkpoints of a run, on one rank: where it goes on from, and when the next is due.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/process_group.h"
#include "device/device.h"
#include "device/stream.h"
#include "examples/llama/config.h"
#include "examples/llama/tokens.h"
#include "examples/train/options.h"
#include "zero/sharded_optimizer.h"

namespace zero::train {

// What a run's ranks share about checkpoints.
struct CheckpointJob {
  // Where to go on, PrepareCheckpoints' path; of ranks that are processes rank 0's counts.
  std::string resume;
  // Where an earlier one may be taken if that one is damaged; empty: nowhere. Rank 0's counts.
  std::string resume_folder;
  // Called on rank 0's thread when the run goes on: with the step that it goes on after. May be
  // empty.
  std::function<void(int64_t step)> resumed;
  // Called on rank 0's thread with a line for people. May be empty.
  std::function<void(const std::string& line)> say;
};

// How the run ended, as far as checkpoints know.
struct RunEnd {
  int64_t first_step = 0;  // before the run; 0 unless it was resumed
  int64_t step = 0;        // the last one
  uint64_t signals = 0;    // bits of StopSignals that stopped it, of any rank; 0: none did
  absl::Status saved;      // of the last checkpoint
};

// Driven by the rank's thread. What is due, all ranks decide alike: from the number of the step,
// and from what any of them asked in an exchange that all of them have seen.
class CheckpointKeeper {
 public:
  // Everything must live longer.
  CheckpointKeeper(const CheckpointJob& job, const Options& options,
                   const llama::LlamaConfig& model, const llama::TokenDataset& data,
                   ProcessGroup* group)
      : job_(job), options_(options), model_(model), data_(data), group_(group) {}

  // [collective] Loads the checkpoint that the run goes on from; false: there is none. Where it was
  // looked for in a folder and is damaged, the one before is taken, and that is said.
  absl::StatusOr<bool> Resume(Device* device, const Stream& stream, ShardedOptimizer* optimizer);
  // Steps done, and steps that changed something, when the run began.
  int64_t first_step() const { return end_.first_step; }
  bool applied_before() const { return applied_before_; }
  // The first sample of a step.
  int64_t PositionOf(int64_t step) const;

  // The first step comes now.
  void Start(ShardedOptimizer* optimizer);
  // What this rank asks of all; goes with what is exchanged about a step.
  uint64_t Requests() const;
  // What ranks asked with that of `step`, or before the first; all of them hear it between the same
  // steps. Without --checkpoint_dir no checkpoint is due, and SIGUSR1, which asks for one, stops
  // nothing.
  void Hear(int64_t step, uint64_t requests);
  // Whether the run ends after the step that was enqueued last, or before the first.
  bool stops() const { return end_.signals != 0; }
  // [collective] `step` is enqueued: saves if that is due. An error: the run cannot go on. That a
  // checkpoint could not be saved is none; it is said.
  absl::Status AfterStep(int64_t step);
  // [collective] After the last step of the run: saves unless that is done, or nothing is.
  absl::Status Finish(int64_t step);
  // [collective] The run ends here: waits for the checkpoint that is being written.
  absl::Status FinishWriting();

  const RunEnd& end() const { return end_; }
  // A line for whoever reads what the run prints, from rank 0.
  void Say(const std::string& line) const;

 private:
  using Clock = std::chrono::steady_clock;

  bool saves() const { return !options_.checkpoint_dir.empty(); }
  bool leads() const { return group_->rank() == 0; }
  // [collective] Rank 0's path.
  absl::StatusOr<std::string> PathOfAll(Device* device, const Stream& stream,
                                        const std::string& path) const;
  // [collective] Loads the one at *path or, where that may be, the last one before it that is
  // whole, which *path names then.
  absl::StatusOr<CheckpointLoaded> Load(Device* device, const Stream& stream,
                                        ShardedOptimizer* optimizer, std::string* path) const;
  absl::Status Save(int64_t step);
  // Says what became of the checkpoint that is being written, if that is known.
  void Look();
  void Note(int64_t step, const absl::StatusOr<CheckpointReport>& outcome);
  // Rank 0: removes what need not be kept, beside the run.
  void Prune(int64_t step);
  void FinishPruning();

  const CheckpointJob& job_;
  const Options& options_;
  const llama::LlamaConfig& model_;
  const llama::TokenDataset& data_;
  ProcessGroup* const group_;
  ShardedOptimizer* optimizer_ = nullptr;

  RunEnd end_;
  int64_t position_ = 0;  // samples taken before the run
  bool applied_before_ = false;
  int64_t saved_step_ = -1;  // of the last checkpoint begun, or loaded from --checkpoint_dir
  bool asked_ = false;       // some rank's time to save has come
  bool told_ = false;        // that SIGUSR1 stops nothing
  Clock::time_point saved_at_;
  std::optional<Pending<CheckpointReport>> pending_;
  std::future<absl::StatusOr<std::vector<std::string>>> pruning_;
};

}  // namespace zero::train
