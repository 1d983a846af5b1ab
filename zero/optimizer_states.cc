#include "zero/optimizer_states.h"

#include "device/status.h"
#include "kernels/kernels.h"
#include "zero/offload/offload_plan.h"
#include "zero/update_range.h"

namespace zero {

absl::StatusOr<OptimizerStates> OptimizerStates::Create(const Context& context) {
  OptimizerStates states(&context);
  const Plan& plan = *context.plan;
  const MemoryCategory category = MemoryCategory::kOptimizerStates;
  ZERO_ASSIGN_OR_RETURN(states.masters_,
                        SegmentBlock::Create(context, plan.masters, category, "master weights"));
  ZERO_ASSIGN_OR_RETURN(states.moment1_,
                        SegmentBlock::Create(context, plan.moment1, category, "first moments"));
  ZERO_ASSIGN_OR_RETURN(states.moment2_,
                        SegmentBlock::Create(context, plan.moment2, category, "second moments"));
  return states;
}

absl::Status OptimizerStates::CopyWeights(const WeightStore& weights) const {
  const Config& config = context_->plan->config;
  for (int u = 0; u < context_->units(); ++u) {
    const UnitLayout& layout = context_->unit(u);
    for (int s = 0; s < static_cast<int>(layout.segments.size()); ++s) {
      const Segment& segment = layout.segments[s];
      char* const master = masters_.at(u, s);
      // Weights that were given leave nothing in the remainders of split masters.
      if (master == nullptr || config.master != MasterKind::kF32) continue;
      const int64_t held = masters_.sliced() ? segment.slice : segment.elements;
      const int64_t first = OffloadedStateElements(config, segment);
      ZERO_RETURN_IF_ERROR(Cast(*context_->arithmetic, weights.UpdatedAt(u, s, first),
                                segment.dtype, master, DType::kF32, held - first));
    }
  }
  return absl::OkStatus();
}

absl::Status OptimizerStates::Update(int unit, WeightStore& weights, GradientStore& gradients,
                                     const StepController& step) const {
  const UnitLayout& layout = context_->unit(unit);
  bool any = false;
  for (int s = 0; s < static_cast<int>(layout.segments.size()); ++s) any |= HasKept(unit, s);
  if (!any) return absl::OkStatus();
  return weights.Write(unit, *context_->arithmetic, [&] {
    return gradients.order(unit).Read(*context_->arithmetic, [&]() -> absl::Status {
      for (int s = 0; s < static_cast<int>(layout.segments.size()); ++s) {
        if (!HasKept(unit, s)) continue;
        ZERO_RETURN_IF_ERROR(UpdateSegment(unit, s, weights, gradients, step));
      }
      return absl::OkStatus();
    });
  });
}

bool OptimizerStates::HasKept(int unit, int s) const {
  const Segment& segment = context_->unit(unit).segments[s];
  const int64_t held = context_->plan->moment1.sliced ? segment.slice : segment.elements;
  return segment.trainable && OffloadedStateElements(context_->plan->config, segment) < held;
}

absl::Status OptimizerStates::UpdateSegment(int unit, int s, const WeightStore& weights,
                                            const GradientStore& gradients,
                                            const StepController& step) const {
  const Plan& plan = *context_->plan;
  const Segment& segment = context_->unit(unit).segments[s];
  const int64_t held = plan.moment1.sliced ? segment.slice : segment.elements;
  const int64_t first = OffloadedStateElements(plan.config, segment);
  UpdateMemory memory;
  memory.gradient = gradients.UpdatedAt(unit, s, first);
  memory.weight = weights.UpdatedAt(unit, s, first);
  memory.master = masters_.at(unit, s);
  memory.moment1 = reinterpret_cast<float*>(moment1_.at(unit, s));
  memory.moment2 = reinterpret_cast<float*>(moment2_.at(unit, s));
  memory.groups = step.group_map() + plan.group_map.offsets[unit][s] + first / kParameterAlignment;
  memory.scalars = step.scalars();
  memory.rows = step.groups();
  return EnqueueUpdate(*context_->arithmetic, *context_, unit, s, first, held - first, memory);
}

}  // namespace zero
