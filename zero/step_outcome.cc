#include "zero/step_outcome.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace zero {

ParameterIndex::ParameterIndex(const Model& model, const Layout& layout) {
  for (size_t u = 0; u < layout.units.size(); ++u) {
    const UnitLayout& unit = layout.units[u];
    std::vector<int64_t>& bases = bases_.emplace_back();
    for (const Segment& segment : unit.segments) {
      bases.push_back(end_);
      if (segment.trainable) end_ += segment.elements;
    }
    for (size_t p = 0; p < unit.parameters.size(); ++p) {
      const Run& run = unit.parameters[p];
      if (!unit.segments[run.segment].trainable || run.count == 0) continue;
      entries_.push_back({bases[run.segment] + run.first, model.units[u].parameters[p].name});
    }
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.first < b.first; });
}

std::string ParameterIndex::Find(int64_t index) const {
  if (index < 0 || index >= end_) return "";
  const auto after =
      std::upper_bound(entries_.begin(), entries_.end(), index,
                       [](int64_t value, const Entry& entry) { return value < entry.first; });
  return after == entries_.begin() ? "" : (after - 1)->name;
}

bool StepOutcome::Ready() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return result_.has_value() || event_->Reached();
}

absl::StatusOr<StepResult> StepOutcome::Get() {
  std::shared_ptr<Event> event;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (result_.has_value()) return *result_;
    event = event_;
  }
  // Waits without the lock, so that others may ask meanwhile.
  // Twice: a rank that is silent fails the collective at the deadline, and that error names it.
  const absl::Status reached = event->Synchronize(2 * deadline_);
  std::lock_guard<std::mutex> lock(mutex_);
  if (result_.has_value()) return *result_;
  if (!event->Reached()) return Read(reached);  // too early: it may still come
  result_ = Read(reached);
  stopped_ = reached.ok() && record_->stop != StopReason::kNone;
  return *result_;
}

bool StepOutcome::stopped() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return stopped_;
}

void StepOutcome::Resolve() {
  (void)Get();
  std::lock_guard<std::mutex> lock(mutex_);
  if (result_.has_value()) event_.reset();
}

absl::Status StepOutcome::Stopped() const {
  const StepRecord& record = *record_;
  if (record.stop_step != step_) {
    return absl::OutOfRangeError(
        absl::StrCat("step ", step_, ": step ", record.stop_step,
                     " stopped the run, and this one changed nothing; its result says why"));
  }
  if (record.stop == StopReason::kNoRow) {
    return absl::OutOfRangeError(absl::StrCat(
        "step ", step_, ": the schedules give no values for applied step ",
        record.applied_steps + 1, ": the rate ", record.learning_rate,
        " must be finite and not negative, the clip limit likewise, beta1 in [0, 1). Nothing "
        "changed in this step"));
  }
  const std::string why =
      record.stop == StopReason::kTooManySkips
          ? absl::StrCat(record.consecutive_skips, " steps in a row were skipped")
          : absl::StrCat("the loss scale is at its minimum ", record.loss_scale,
                         " and the gradients overflow still");
  const std::string writer =
      record.producer < 0 ? ""
                          : absl::StrCat("; rank ", record.producer, " wrote the first, in '",
                                         names_->Find(record.first_written), "'");
  return absl::OutOfRangeError(
      absl::StrCat("step ", step_, ": ", why, ". ", record.non_finite,
                   " elements of the gradient are inf or NaN, the first in '",
                   names_->Find(record.first_non_finite), "', owned by rank ", record.owner, writer,
                   ". Weights and moments are those of applied step ", record.applied_steps,
                   ". Does the loss overflow, is the rate too high, would bf16 have the range?"));
}

absl::StatusOr<StepResult> StepOutcome::Read(const absl::Status& reached) const {
  if (!reached.ok()) {
    return absl::Status(reached.code(), absl::StrCat("step ", step_, ": ", reached.message()));
  }
  if (record_->group_failed != 0) {
    // Where the device is not the host, it goes on after a failure there.
    const absl::Status disk = disk_ == nullptr ? absl::OkStatus() : disk_->status();
    if (!disk.ok()) {
      return absl::Status(disk.code(), absl::StrCat("step ", step_, ": ", disk.message()));
    }
    return absl::AbortedError(
        absl::StrCat("step ", step_,
                     ": the group, or a rank's disk, failed before the norms were exchanged; the "
                     "optimizer's next call says what and what is left"));
  }
  if (record_->row_missing != 0) {
    return absl::InternalError(absl::StrCat("step ", step_, ": no schedule row for applied step ",
                                            record_->applied_steps + 1));
  }
  if (record_->stop != StopReason::kNone) return Stopped();
  StepResult result;
  result.step = step_;
  result.applied_steps = record_->applied_steps;
  result.applied = record_->applied != 0;
  result.gradient_norm = record_->gradient_norm;
  result.clip_coefficient = record_->clip_coefficient;
  result.learning_rate = record_->learning_rate;
  result.loss_scale = record_->loss_scale;
  result.loss_weight = record_->loss_weight;
  result.next_loss_scale = record_->next_loss_scale;
  result.skipped_steps = record_->skipped;
  result.consecutive_skips = record_->consecutive_skips;
  result.non_finite = record_->non_finite;
  result.first_non_finite = names_->Find(record_->first_non_finite);
  result.owner = record_->owner;
  result.producer = record_->producer;
  return result;
}

}  // namespace zero
