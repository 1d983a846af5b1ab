#include "zero/optimizer_states.h"

#include "device/status.h"
#include "kernels/kernels.h"

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
      const SegmentBlock& block = weights.block();
      const char* const weight = masters_.sliced()
                                     ? block.slice(u, s, segment.slice, SizeOf(segment.dtype))
                                     : block.at(u, s);
      ZERO_RETURN_IF_ERROR(Cast(*context_->arithmetic, weight, segment.dtype, master, DType::kF32,
                                masters_.sliced() ? segment.slice : segment.elements));
    }
  }
  return absl::OkStatus();
}

absl::Status OptimizerStates::Update(int unit, WeightStore& weights, GradientStore& gradients,
                                     const StepController& step) const {
  const UnitLayout& layout = context_->unit(unit);
  if (!layout.trainable()) return absl::OkStatus();
  return weights.Update(unit, *context_->arithmetic, /*everywhere=*/false, [&] {
    return gradients.order(unit).Read(*context_->arithmetic, [&]() -> absl::Status {
      for (int s = 0; s < static_cast<int>(layout.segments.size()); ++s) {
        if (!layout.segments[s].trainable || layout.segments[s].elements == 0) continue;
        ZERO_RETURN_IF_ERROR(UpdateSegment(unit, s, weights, gradients, step));
      }
      return absl::OkStatus();
    });
  });
}

absl::Status OptimizerStates::UpdateSegment(int unit, int s, const WeightStore& weights,
                                            const GradientStore& gradients,
                                            const StepController& step) const {
  const Plan& plan = *context_->plan;
  const Config& config = plan.config;
  const Segment& segment = context_->unit(unit).segments[s];
  const DType stored = StoredType(config, segment);
  const bool sliced = plan.moment1.sliced;
  // Stage 0 updates whole segments, the others this rank's slice of them.
  const auto held = [&](const SegmentBlock& block, int64_t element) {
    return sliced ? block.slice(unit, s, segment.slice, element) : block.at(unit, s);
  };
  char* const weight = held(weights.block(), SizeOf(segment.dtype));
  const bool own_master = segment.dtype == DType::kF32;
  float* const master = reinterpret_cast<float*>(own_master ? weight : masters_.at(unit, s));
  const uint8_t* const groups = step.group_map() + plan.group_map.offsets[unit][s];

  const auto fill = [&](auto& arguments) {
    arguments.gradient = held(gradients.block(), SizeOf(stored));
    arguments.gradient_type = stored;
    arguments.weights.master = master;
    arguments.weights.weight = own_master ? nullptr : weight;
    arguments.weights.weight_type = segment.dtype;
    arguments.moment1 = reinterpret_cast<float*>(moment1_.at(unit, s));
    arguments.groups = groups;
    arguments.n = sliced ? segment.slice : segment.elements;
    arguments.scalars = step.scalars();
    arguments.rows = step.groups();
  };
  if (config.optimizer == OptimizerKind::kSgd) {
    SgdArguments sgd;
    fill(sgd);
    sgd.nesterov = config.nesterov;
    return Sgd(*context_->arithmetic, sgd);
  }
  if (config.optimizer == OptimizerKind::kLion) {
    LionArguments lion;
    fill(lion);
    lion.beta2 = static_cast<float>(config.beta2);
    lion.one_minus_beta2 = static_cast<float>(1 - config.beta2);
    return Lion(*context_->arithmetic, lion);
  }
  AdamArguments adam;
  fill(adam);
  adam.moment2 = reinterpret_cast<float*>(moment2_.at(unit, s));
  adam.beta2 = static_cast<float>(config.beta2);
  adam.one_minus_beta2 = static_cast<float>(1 - config.beta2);
  adam.epsilon = static_cast<float>(config.epsilon);
  return Adam(*context_->arithmetic, adam);
}

}  // namespace zero
