// The file of metrics: one line of JSON a step.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/train/rank_trainer.h"
#include "io/folder_lock.h"

namespace zero::train {

// {"step", "loss", "learning_rate", "grad_norm", "loss_scale", "next_loss_scale", "skipped",
// "skipped_steps", "consecutive_skips", "tokens", "tokens_per_second", "step_seconds",
// "memory": {category: {"current", "peak"}}, "wire": {name: bytes}} and, where the step was
// followed by an evaluation, "evaluation_loss". Losses in nats per token; grad_norm before
// clipping; skipped_steps so far; memory in bytes, the most of any rank; wire: bytes that rank 0
// sent; where something is offloaded also "offload": {...}, the fields of OffloadReport, of rank 0
// since the step before had its result; the last line has all that was left. Numbers read back
// exactly; null: not finite.
std::string MetricsLine(const StepReport& report);

// Writes whole lines, each at once. The first replaces what is in the file, but for lines of steps
// before the run; a file that was made for nothing is removed again.
class MetricsFile {
 public:
  // Tries whether `path` can be written to, and keeps other runs from it while this lives. An empty
  // path: no metrics are wanted. kFailedPrecondition: another run writes it, and is named. After
  // `resumed_step` steps (0: none) the lines of these stay, and later ones go; kInvalidArgument:
  // the file holds something else.
  static absl::StatusOr<MetricsFile> Create(const std::string& path, int64_t resumed_step = 0);
  MetricsFile(MetricsFile&&) = default;
  MetricsFile& operator=(MetricsFile&&) = default;
  ~MetricsFile();

  // The run begins after an earlier step than was said: lines of later ones go. Before Write.
  void GoBackTo(int64_t step);
  absl::Status Write(const StepReport& report);
  const std::string& path() const { return path_; }
  // Nothing keeps other runs from a file: no lock can be made beside it.
  bool open_to_others() const { return regular_ && !lock_.held(); }
  // A file that goes with it, if there is one.
  std::vector<std::string> traces() const;

 private:
  MetricsFile() = default;
  absl::Status KeepOthersOut();

  FolderLock lock_;
  std::string path_;    // as it was given
  std::string target_;  // where symbolic links lead
  std::ofstream file_;
  std::string kept_;  // what the file begins with
  bool existed_ = false;
  bool regular_ = false;  // and not a pipe, say
  bool empty_ = true;
};

}  // namespace zero::train
