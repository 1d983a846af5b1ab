#include "zero/offload/backward_updates.h"

#include <utility>

#include "device/status.h"

namespace zero {

BackwardUpdates::BackwardUpdates(const Context& context, StepController* step,
                                 OffloadPipeline* pipeline, WeightStore* weights,
                                 const GradientStore* gradients)
    : context_(context),
      on_(UpdatesDuringBackward(context.plan->config)),
      step_(step),
      pipeline_(pipeline),
      weights_(weights),
      gradients_(gradients),
      next_(context.units() - 1) {}

int BackwardUpdates::Next() {
  while (next_ >= 0 && !context_.unit(next_).trainable()) --next_;
  return next_;
}

absl::Status BackwardUpdates::AfterGroup(int64_t passes, double loss_weight) {
  if (!on_ || std::exchange(tried_, true)) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(step_->DecideAhead(passes, loss_weight));
  decided_ = step_->decided_ahead();
  return decided_ ? pipeline_->BeginStep(*step_) : absl::OkStatus();
}

absl::Status BackwardUpdates::UpdateReleased() {
  if (!decided_) return absl::OkStatus();
  while (Next() >= 0 && gradients_->Complete(next_) && !weights_->held(next_)) {
    ZERO_RETURN_IF_ERROR(pipeline_->Update(next_, *weights_));
    --next_;
  }
  return absl::OkStatus();
}

void BackwardUpdates::EndStep() {
  next_ = context_.units() - 1;
  tried_ = decided_ = false;
}

}  // namespace zero
