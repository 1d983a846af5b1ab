#include "zero/step_progress.h"

#include <algorithm>

#include "device/status.h"
#include "kernels/decide.h"
#include "zero/step_controller.h"

namespace zero {

absl::StatusOr<StepProgress> StepProgress::Create(const Context& context, int32_t* failures) {
  StepProgress progress(&context);
  const int stage = context.plan->config.stage;
  const bool gathers_updates = (stage == 1 || stage == 2) && context.group->size() > 1;
  const bool exchanges = gathers_updates || UpdatesDuringBackward(context.plan->config);
  if (exchanges && context.group->failure_flag() != nullptr) progress.failures_ = failures;
  for (Marks& marks : progress.ring_) {
    for (size_t i = 0; i < context.streams().size(); ++i) {
      ZERO_ASSIGN_OR_RETURN(marks.events.emplace_back(), context.device->CreateEvent());
    }
  }
  return progress;
}

absl::Status StepProgress::Mark(int64_t step) {
  Marks& marks = ring_[step % kStepRows];
  complete_ = std::max(complete_, marks.step);
  marks.step = 0;
  if (failures_ != nullptr) {
    ZERO_RETURN_IF_ERROR(NoteFailure(*context_->communication, context_->group->failure_flag(),
                                     failures_ + step % kStepRows));
  }
  const std::vector<const Stream*> streams = context_->streams();
  for (size_t i = 0; i < streams.size(); ++i) {
    ZERO_RETURN_IF_ERROR(marks.events[i]->Record(*streams[i]));
  }
  marks.step = step;
  return absl::OkStatus();
}

bool StepProgress::Complete(int64_t step) const {
  if (step <= complete_) return true;
  const Marks& marks = ring_[step % kStepRows];
  if (marks.step != step) return false;
  for (const std::unique_ptr<Event>& event : marks.events) {
    if (!event->Reached() || !event->Synchronize(absl::ZeroDuration()).ok()) return false;
  }
  return Exchanged(step);
}

bool StepProgress::Exchanged(int64_t step) const {
  if (failures_ == nullptr) return true;
  const absl::StatusOr<std::unique_ptr<Stream>> stream =
      context_->device->CreateStream("exchanged");
  if (!stream.ok()) return false;
  int32_t failed = 1;
  const absl::Status enqueued =
      context_->device->Copy(**stream, &failed, failures_ + step % kStepRows, sizeof(failed));
  return (*stream)->Synchronize().ok() && enqueued.ok() && failed == 0;
}

void StepProgress::Finished() {
  for (const Marks& marks : ring_) complete_ = std::max(complete_, marks.step);
}

void StepProgress::Restart(int64_t step) {
  for (Marks& marks : ring_) marks.step = 0;
  complete_ = step;
}

absl::Status StepProgress::Drain() const {
  for (const Stream* stream : context_->streams()) {
    ZERO_ASSIGN_OR_RETURN(std::unique_ptr<Event> event, context_->device->CreateEvent());
    ZERO_RETURN_IF_ERROR(event->Record(*stream));
    const absl::Status reached = event->Synchronize(2 * context_->group->deadline());
    if (!event->Reached()) return reached;
  }
  return absl::OkStatus();
}

bool StepProgress::MayBeHalfDone(const StepController& controller) {
  const int64_t newest = controller.decided();
  if (newest <= complete_) return false;
  const bool drained = Drain().ok();
  if (Complete(newest)) return false;
  // Where waits do not fail, what a failed stream was to fill goes to the device all the same.
  const bool weights_stay = context_->plan->config.offload.parameters == Place::kDevice;
  for (const Stream* stream : context_->offload) {
    const bool copies = weights_stay && context_->device->kind() != DeviceKind::kHost;
    if (copies && !stream->Health().ok()) return true;
  }
  // An aborted gather leaves anything in the weights that it was to fill, also when the step that
  // it belongs to did not apply; an aborted reduction, in what is updated with it.
  if (failures_ != nullptr || !drained) return true;
  const absl::StatusOr<StepRecord> record = controller.LastRecord();
  if (!record.ok()) return true;
  // Not the last decision: one that was refused may follow one that applied and did not end.
  const int64_t applied = record->last_applied_step;
  return applied > complete_ && !Complete(applied);
}

}  // namespace zero
