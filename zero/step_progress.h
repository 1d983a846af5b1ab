// Which steps are known to have run to their end: what decides after a failure whether the state is
// still whole.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "device/event.h"
#include "zero/context.h"
#include "zero/plan.h"

namespace zero {

class StepController;

class StepProgress {
 public:
  // `failures`: int32_t[kStepRows] on the device.
  static absl::StatusOr<StepProgress> Create(const Context& context, int32_t* failures);

  // Everything of `step` is enqueued.
  absl::Status Mark(int64_t step);

  // Everything marked has run, and the group is healthy.
  void Finished();
  // The state is that after `step`, whatever was marked before.
  void Restart(int64_t step);

  // After a failure, once the group is aborted: whether a step may have changed something and not
  // all. Waits until the streams have drained, at most twice the group's deadline each. True also
  // when that cannot be found out.
  bool MayBeHalfDone(const StepController& controller);

 private:
  struct Marks {
    int64_t step = 0;                            // 0: none
    std::vector<std::unique_ptr<Event>> events;  // by stream
  };

  explicit StepProgress(const Context* context) : context_(context) {}
  // Everything of `step` has run, without a failure.
  bool Complete(int64_t step) const;
  // The collectives of `step`, which have ended, were not let go by a group that failed.
  bool Exchanged(int64_t step) const;
  absl::Status Drain() const;

  const Context* context_;
  // Where streams go on after a collective that failed (ProcessGroup::failure_flag) and a step has
  // collectives after its decision, which looks at the flag itself: the flag as it was after these,
  // by step. Else null. They are gathers of what was updated, or reductions of what is
  // (UpdatesDuringBackward).
  int32_t* failures_ = nullptr;
  // A step is enqueued only when the result of the one kStepsInFlight before it has arrived, so
  // everything of the one before that has run.
  std::array<Marks, kStepRows> ring_;
  int64_t complete_ = 0;
};

}  // namespace zero
