#include "examples/train/checkpoints.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "device/status.h"
#include "examples/support/text.h"
#include "examples/train/resume.h"
#include "examples/train/signals.h"
#include "zero/plan.h"
#include "zero/rank_exchange.h"
#include "zero/save/checkpoint_folder.h"

namespace zero::train {
namespace {

// Bits of what a rank asks of all: above them those of StopSignals.
constexpr uint64_t kSave = 1;
constexpr int kSignalShift = 1;

}  // namespace

void CheckpointKeeper::Say(const std::string& line) const {
  if (leads() && job_.say) job_.say(line);
}

int64_t CheckpointKeeper::PositionOf(int64_t step) const {
  return position_ + (step - 1 - end_.first_step) * SamplesPerStep(DealingOf(options_, 0));
}

absl::StatusOr<std::string> CheckpointKeeper::PathOfAll(Device* device, const Stream& stream,
                                                        const std::string& path) const {
  if (options_.resume.empty() || group_->size() == 1) return path;
  // Only rank 0's process has looked: another might find another one.
  ZERO_ASSIGN_OR_RETURN(RankExchange exchange,
                        RankExchange::Create(device, group_, "path of the checkpoint"));
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                        exchange.Run(stream, kStateTransfer, path));
  return paths[0];
}

absl::StatusOr<CheckpointLoaded> CheckpointKeeper::Load(Device* device, const Stream& stream,
                                                        ShardedOptimizer* optimizer,
                                                        std::string* path) const {
  for (int damaged = 1;; ++damaged) {
    const absl::StatusOr<CheckpointLoaded> loaded = optimizer->LoadCheckpoint(*path);
    // Every rank has the same error of a file, and goes the same way.
    if (!absl::IsDataLoss(loaded.status()) || !group_->Health().ok()) return loaded;
    const std::string damage(loaded.status().message());
    ZERO_ASSIGN_OR_RETURN(
        const std::string before,
        PathOfAll(device, stream, leads() ? CheckpointBefore(*path, job_.resume_folder) : ""));
    if (before.empty()) {
      ZERO_ASSIGN_OR_RETURN(const std::string folder,
                            PathOfAll(device, stream, leads() ? job_.resume_folder : ""));
      if (folder.empty()) {
        return absl::DataLossError(absl::StrCat(
            damage, "; of a folder of checkpoints --resume takes the newest that is sound"));
      }
      return absl::DataLossError(absl::StrCat(
          "no checkpoint in ", folder, " is sound, each of ", damaged,
          " that could be gone on from is damaged; the oldest: ", damage,
          "; --resume can name another folder, or the run begin anew without it, elsewhere"));
    }
    Say(absl::StrCat("resume      passed over, damaged: ", damage));
    *path = before;
  }
}

absl::StatusOr<bool> CheckpointKeeper::Resume(Device* device, const Stream& stream,
                                              ShardedOptimizer* optimizer) {
  ZERO_ASSIGN_OR_RETURN(std::string path, PathOfAll(device, stream, job_.resume));
  if (path.empty()) return false;
  ZERO_ASSIGN_OR_RETURN(const CheckpointLoaded loaded, Load(device, stream, optimizer, &path));
  ZERO_ASSIGN_OR_RETURN(const RunState state, ReadRunState(path, loaded.step, loaded.attributes,
                                                           options_, model_, data_));
  position_ = state.position;
  end_.first_step = loaded.step;
  end_.step = loaded.step;
  applied_before_ = loaded.applied_steps > 0;
  std::error_code error;
  const auto parent = (std::filesystem::path(path) / "..").lexically_normal();
  if (saves() && std::filesystem::equivalent(parent, options_.checkpoint_dir, error)) {
    saved_step_ = loaded.step;
  }
  if (leads() && job_.resumed) job_.resumed(loaded.step);
  Say(absl::StrCat("resumed     ", path, ": step ", loaded.step, " of ", options_.steps, ", ",
                   support::WithSeparators(position_), " samples taken, written by ",
                   loaded.world_size, loaded.world_size == 1 ? " rank" : " ranks", " in stage ",
                   loaded.stage));
  for (const std::string& note : state.notes) Say(absl::StrCat("note        ", note));
  // Weights that were made into a checkpoint come without a configuration.
  const bool imported = loaded.attributes.empty();
  for (const std::string& note : imported ? std::vector<std::string>() : loaded.notes) {
    Say(absl::StrCat("note        ", note, "; the configuration wins"));
  }
  return true;
}

void CheckpointKeeper::Start(ShardedOptimizer* optimizer) {
  optimizer_ = optimizer;
  saved_at_ = Clock::now();
}

uint64_t CheckpointKeeper::Requests() const {
  uint64_t requests = StopSignals() << kSignalShift;
  if (!saves()) return requests;
  const std::chrono::duration<double> since = Clock::now() - saved_at_;
  const double minutes = options_.save_every_minutes;
  if (leads() && minutes > 0 && since.count() >= 60 * minutes) requests |= kSave;
  return requests;
}

void CheckpointKeeper::Hear(int64_t step, uint64_t requests) {
  // One that was asked for before the last checkpoint has been answered by it.
  asked_ |= (requests & kSave) != 0 && step > std::max(saved_step_, end_.first_step);
  const uint64_t signals = requests >> kSignalShift;
  end_.signals |= saves() ? signals : signals & ~kStopUser;
  if (saves() || (signals & kStopUser) == 0 || std::exchange(told_, true)) return;
  Say("note        SIGUSR1 stops and saves a run, but this one has no --checkpoint_dir: it goes "
      "on");
}

absl::Status CheckpointKeeper::AfterStep(int64_t step) {
  end_.step = step;
  if (!saves()) return absl::OkStatus();
  if (asked_ || (options_.save_every > 0 && step % options_.save_every == 0)) return Save(step);
  Look();
  return absl::OkStatus();
}

absl::Status CheckpointKeeper::Finish(int64_t step) {
  end_.step = step;
  // What came with the last step stopped nothing.
  if (step == options_.steps) end_.signals = 0;
  if (!saves()) return absl::OkStatus();
  if (step > saved_step_ && step > 0) ZERO_RETURN_IF_ERROR(Save(step));
  return FinishWriting();
}

absl::Status CheckpointKeeper::FinishWriting() {
  if (!saves()) return absl::OkStatus();
  // Its error is no error of the run, unless the group has failed.
  if (!optimizer_->FinishCheckpoint().ok()) ZERO_RETURN_IF_ERROR(group_->Health());
  Look();
  FinishPruning();
  return absl::OkStatus();
}

absl::Status CheckpointKeeper::Save(int64_t step) {
  ZERO_RETURN_IF_ERROR(FinishWriting());  // the one before is told of first
  CheckpointOptions options;
  options.attributes = RunAttributes(options_, model_, data_, PositionOf(step + 1));
  absl::StatusOr<Pending<CheckpointReport>> pending =
      optimizer_->SaveCheckpoint(options_.checkpoint_dir, options);
  asked_ = false;
  saved_step_ = step;
  saved_at_ = Clock::now();
  if (pending.ok()) {
    pending_ = *std::move(pending);
    Look();
    return absl::OkStatus();
  }
  ZERO_RETURN_IF_ERROR(group_->Health());
  // The optimizer has stopped the run.
  if (absl::IsOutOfRange(pending.status())) return pending.status();
  Note(step, pending.status());
  return absl::OkStatus();
}

void CheckpointKeeper::Look() {
  if (!pending_.has_value() || !pending_->Ready()) return;
  const absl::StatusOr<CheckpointReport> outcome = pending_->Get();
  pending_.reset();
  Note(saved_step_, outcome);
}

void CheckpointKeeper::Note(int64_t step, const absl::StatusOr<CheckpointReport>& outcome) {
  end_.saved = outcome.status();
  if (!outcome.ok()) {
    Say(absl::StrCat("checkpoint  of step ", step,
                     " is not saved: ", std::string(outcome.status().message())));
    return;
  }
  std::string line = absl::StrFormat("checkpoint  %s: %s a rank in %.1f s", outcome->path,
                                     support::Megabytes(outcome->bytes), outcome->seconds);
  if (outcome->bytes_before_return > 0) {
    absl::StrAppend(&line, ", ", support::Megabytes(outcome->bytes_before_return),
                    " of it before the run went on");
  }
  Say(line);
  Prune(step);
}

void CheckpointKeeper::Prune(int64_t step) {
  FinishPruning();
  if (!leads() || options_.keep_last == 0) return;
  pruning_ = std::async(std::launch::async, [this, step] {
    return PruneCheckpoints(options_.checkpoint_dir, step, options_.keep_last, options_.keep_every);
  });
}

void CheckpointKeeper::FinishPruning() {
  if (!pruning_.valid()) return;
  const absl::StatusOr<std::vector<std::string>> removed = pruning_.get();
  if (!removed.ok()) {
    Say(absl::StrCat("checkpoint  older ones stay: ", std::string(removed.status().message())));
  } else if (!removed->empty()) {
    Say(absl::StrCat("checkpoint  removed ", absl::StrJoin(*removed, ", ")));
  }
}

}  // namespace zero::train
