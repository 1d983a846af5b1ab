// Masters and moments on the device, and the update that reads gradients and writes weights. Of
// slices that are offloaded in part, what is here begins after that part.
#pragma once

#include "absl/status/statusor.h"
#include "zero/context.h"
#include "zero/gradient_store.h"
#include "zero/step_controller.h"
#include "zero/weight_store.h"

namespace zero {

class OptimizerStates {
 public:
  static absl::StatusOr<OptimizerStates> Create(const Context& context);

  // Enqueues the making of masters from weights.
  absl::Status CopyWeights(const WeightStore& weights) const;

  // Enqueues the update of one unit, on what this rank holds states for on the device.
  absl::Status Update(int unit, WeightStore& weights, GradientStore& gradients,
                      const StepController& step) const;

  const SegmentBlock& masters() const { return masters_; }
  const SegmentBlock& moment1() const { return moment1_; }
  const SegmentBlock& moment2() const { return moment2_; }

 private:
  explicit OptimizerStates(const Context* context) : context_(context) {}
  // Whether states of a segment are on the device.
  bool HasKept(int unit, int segment) const;
  absl::Status UpdateSegment(int unit, int segment, const WeightStore& weights,
                             const GradientStore& gradients, const StepController& step) const;

  const Context* context_;
  SegmentBlock masters_;
  SegmentBlock moment1_;
  SegmentBlock moment2_;
};

}  // namespace zero
