// A checkpoint on its way to the disk: the ranks' files, what they agree on, and the manifest.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "zero/context.h"
#include "zero/pending.h"
#include "zero/rank_exchange.h"
#include "zero/save/checkpoint.h"
#include "zero/save/checkpoint_writer.h"
#include "zero/state_transfer.h"

namespace zero {

class StepController;

// Bytes of the slots that a plan has for checkpoints, of the host; 0: those of StateTransfer are
// used, and SaveCheckpoint returns when the checkpoint is complete.
int64_t CheckpointSlotBytes(const Plan& plan);

// One rank's end; driven by one thread. Every rank writes its file into a temporary folder. When
// all are on the disk, rank 0 writes the manifest and renames the folder. That ranks have come so
// far they tell each other in collectives that the driving threads issue, all at the same calls:
// one in each Step, whose result is looked at kStepsInFlight steps later, so that nobody waits.
//
// Errors that are marked as Misuse are those of the checkpoint: the same on every rank, with the
// group as it was. Others are the group's.
class CheckpointSaver {
 public:
  static absl::StatusOr<std::unique_ptr<CheckpointSaver>> Create(const Context& context,
                                                                 const StateTransfer* transfer,
                                                                 const StepController* step);
  // Gives up what is not complete and removes this rank's part of it.
  ~CheckpointSaver();

  // [collective] See ShardedOptimizer::SaveCheckpoint. Between steps.
  absl::StatusOr<Pending<CheckpointReport>> Save(const std::string& folder,
                                                 const CheckpointOptions& options);
  // [collective] Once in each step.
  absl::Status Advance();
  // [collective] Waits for the outcome, and returns its error. OK if nothing is being written.
  absl::Status Finish();

 private:
  class Outcome;
  struct Job;

  CheckpointSaver(const Context& context, const StepController* step);
  // [collective] Returns when every rank's state is in slots or in its file.
  absl::Status CopyAll();
  // How long a rank may work between two exchanges with others that wait for it.
  std::chrono::nanoseconds Patience() const;
  // Where this rank's part of the job stands, as the others are told.
  std::string Progress();
  // What all ranks said becomes the next phase, or the end of the job.
  void Decide(const std::vector<std::string>& said);
  void Resolve(const absl::StatusOr<CheckpointReport>& outcome);
  absl::Status WriteChecksums(const CheckpointWriter::Written& written) const;
  // Rank 0: from the ranks' files to the checkpoint.
  absl::Status Publish() const;
  bool leads() const { return context_.rank() == 0; }

  const Context& context_;
  const StepController* const step_;
  const StateTransfer* transfer_ = nullptr;
  Buffer memory_;
  std::optional<RankExchange> exchange_;
  std::unique_ptr<CheckpointWriter> writer_;
  std::unique_ptr<Job> job_;   // null: nothing is being written
  int64_t exchanged_at_ = -1;  // the step whose exchange waits to be looked at
};

}  // namespace zero
