// Offloaded updates that start while backward still runs.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "zero/context.h"
#include "zero/gradient_store.h"
#include "zero/offload/offload_pipeline.h"
#include "zero/step_controller.h"
#include "zero/weight_store.h"

namespace zero {

// Where nothing about a step depends on all of its gradients (UpdatesDuringBackward), it is decided
// as soon as the first sum of its last pass is made, and each unit is updated once its gradients
// are complete and the trainer has released it. All parts outlive it.
class BackwardUpdates {
 public:
  BackwardUpdates(const Context& context, StepController* step, OffloadPipeline* pipeline,
                  WeightStore* weights, const GradientStore* gradients);

  // Whether that is so for this optimizer.
  bool on() const { return on_; }
  // [collective] Behind the sum of each reduction group of a kTrainLast pass, the `passes`-th of
  // the step: wherever units are reduced or passed over, this comes between the same collectives on
  // every rank.
  absl::Status AfterGroup(int64_t passes, double loss_weight);
  // After each ReduceGradients and ReleaseWeights of it.
  absl::Status UpdateReleased();

  // The unit's gradients of the last pass are complete: its weights change now or soon.
  bool Changes(int unit) const { return on_ && gradients_->Complete(unit); }
  // The step's scalars are on the host, and the update of the unit is enqueued.
  bool decided() const { return decided_; }
  bool Updated(int unit) const { return unit > next_; }
  void EndStep();

 private:
  // The next unit whose turn it is, or -1.
  int Next();

  const Context& context_;
  const bool on_;
  StepController* const step_;
  OffloadPipeline* const pipeline_;
  WeightStore* const weights_;
  const GradientStore* const gradients_;
  bool tried_ = false;  // to decide, in this step
  bool decided_ = false;
  int next_;  // in the order of backward
};

}  // namespace zero
