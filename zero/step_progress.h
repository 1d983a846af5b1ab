// Which steps are known to have run to their end: what decides after a failure whether the state is
// still whole.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "device/event.h"
#include "zero/context.h"
#include "zero/plan.h"

namespace zero {

class StepController;

class StepProgress {
 public:
  static absl::StatusOr<StepProgress> Create(const Context& context);

  // Everything of `step` is enqueued.
  absl::Status Mark(int64_t step);

  // Everything marked has run, and the group is healthy.
  void Finished();

  // Notes what has run while the group is healthy. Only where a group's failure cannot be told from
  // success by the streams (ProcessGroup::failure_flag); elsewhere the events know.
  void Observe();

  // After a failure, once the group is aborted: whether a step may have changed something and not
  // all. Waits until the streams have drained, at most twice the group's deadline each. True also
  // when that cannot be found out.
  bool MayBeHalfDone(const StepController& controller);

 private:
  struct Marks {
    int64_t step = 0;  // 0: none
    std::unique_ptr<Event> arithmetic, communication;
  };

  explicit StepProgress(const Context* context) : context_(context) {}
  // Everything of `step` has run, without a failure.
  bool Complete(int64_t step) const;
  absl::Status Drain() const;

  const Context* context_;
  // A step is enqueued only when the result of the one kStepsInFlight before it has arrived, so
  // everything of the one before that has run.
  std::array<Marks, kStepRows> ring_;
  int64_t complete_ = 0;
};

}  // namespace zero
