#include "zero/optimizer_states.h"

#include <algorithm>

#include "device/status.h"
#include "zero/initializer.h"

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

// One update kernel per parameter where random bits depend on it, else one for all that is held.
std::vector<OptimizerStates::Piece> OptimizerStates::PiecesOf(int unit, int s) const {
  const Config& config = context_->plan->config;
  const UnitLayout& layout = context_->unit(unit);
  const Segment& segment = layout.segments[s];
  const bool sliced = context_->plan->moment1.sliced;
  const int64_t held = sliced ? segment.slice : segment.elements;
  if (config.master != MasterKind::kNone || segment.dtype == DType::kF32) return {{0, held, 0, 0}};
  const int64_t shift = sliced ? context_->rank() * segment.slice : 0;
  std::vector<Piece> pieces;
  for (size_t p = 0; p < layout.parameters.size(); ++p) {
    const Run& run = layout.parameters[p];
    if (run.segment != s) continue;
    const int64_t end = (run.first + run.count + kParameterAlignment - 1) / kParameterAlignment *
                        kParameterAlignment;
    const int64_t from = std::max(run.first - shift, int64_t{0});
    const int64_t to = std::min(end - shift, held);
    if (from >= to) continue;
    const uint64_t hash = NameHash(context_->model->units[unit].parameters[p].name);
    const uint64_t mixed = hash ^ (config.rounding_seed * 0x9E3779B97F4A7C15u);
    pieces.push_back(
        {from, to - from, static_cast<uint32_t>(mixed ^ (mixed >> 32)), from + shift - run.first});
  }
  return pieces;
}

absl::Status OptimizerStates::UpdateSegment(int unit, int s, const WeightStore& weights,
                                            const GradientStore& gradients,
                                            const StepController& step) const {
  for (const Piece& piece : PiecesOf(unit, s)) {
    ZERO_RETURN_IF_ERROR(UpdatePiece(unit, s, piece, weights, gradients, step));
  }
  return absl::OkStatus();
}

MasterMemory OptimizerStates::MasterOf(int unit, int s, const Piece& piece, char* weight) const {
  const Config& config = context_->plan->config;
  const DType type = context_->unit(unit).segments[s].dtype;
  MasterMemory memory;
  if (type == DType::kF32) {
    memory.master = reinterpret_cast<float*>(weight) + piece.first;
    return memory;
  }
  memory.weight = weight + piece.first * SizeOf(type);
  memory.weight_type = type;
  memory.ties_away = config.weight_rounding == WeightRounding::kNearestAway;
  memory.random_key = piece.random_key;
  memory.first_element = piece.first_element;
  char* const own = masters_.at(unit, s);
  switch (config.master) {
    case MasterKind::kF32:
      memory.master = reinterpret_cast<float*>(own) + piece.first;
      break;
    case MasterKind::kSplit:
      memory.remainder = reinterpret_cast<uint16_t*>(own) + piece.first;
      break;
    case MasterKind::kNone:
      break;
  }
  return memory;
}

absl::Status OptimizerStates::UpdatePiece(int unit, int s, const Piece& piece,
                                          const WeightStore& weights,
                                          const GradientStore& gradients,
                                          const StepController& step) const {
  const Plan& plan = *context_->plan;
  const Config& config = plan.config;
  const Segment& segment = context_->unit(unit).segments[s];
  const DType stored = StoredType(config, segment);
  // Stage 0 updates whole segments, the others this rank's slice of them.
  const auto held = [&](const SegmentBlock& block, int64_t element) {
    return plan.moment1.sliced ? block.slice(unit, s, segment.slice, element) : block.at(unit, s);
  };
  const auto moment = [&](const SegmentBlock& block) {
    char* const start = block.at(unit, s);
    return start == nullptr ? nullptr : reinterpret_cast<float*>(start) + piece.first;
  };
  const auto fill = [&](auto& arguments) {
    arguments.gradient = held(gradients.block(), SizeOf(stored)) + piece.first * SizeOf(stored);
    arguments.gradient_type = stored;
    arguments.weights = MasterOf(unit, s, piece, held(weights.block(), SizeOf(segment.dtype)));
    arguments.moment1 = moment(moment1_);
    arguments.groups =
        step.group_map() + plan.group_map.offsets[unit][s] + piece.first / kParameterAlignment;
    arguments.n = piece.count;
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
  adam.moment2 = moment(moment2_);
  adam.beta2 = static_cast<float>(config.beta2);
  adam.one_minus_beta2 = static_cast<float>(1 - config.beta2);
  adam.epsilon = static_cast<float>(config.epsilon);
  return Adam(*context_->arithmetic, adam);
}

}  // namespace zero
