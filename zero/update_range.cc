#include "zero/update_range.h"

#include <algorithm>
#include <vector>

#include "device/status.h"
#include "kernels/kernels.h"
#include "zero/initializer.h"

namespace zero {
namespace {

// What one kernel takes.
struct Piece {
  int64_t first = 0;
  int64_t count = 0;
  uint32_t random_key = 0;    // of the parameter
  int64_t first_element = 0;  // within the parameter
};

// One kernel per parameter where random bits depend on it, else one for all.
std::vector<Piece> PiecesOf(const Context& context, int unit, int s, int64_t first, int64_t count) {
  const Config& config = context.plan->config;
  const UnitLayout& layout = context.unit(unit);
  const Segment& segment = layout.segments[s];
  if (config.master != MasterKind::kNone || segment.dtype == DType::kF32) {
    return {{first, count, 0, 0}};
  }
  const int64_t shift = context.plan->moment1.sliced ? context.rank() * segment.slice : 0;
  std::vector<Piece> pieces;
  for (size_t p = 0; p < layout.parameters.size(); ++p) {
    const Run& run = layout.parameters[p];
    if (run.segment != s) continue;
    const int64_t end = (run.first + run.count + kParameterAlignment - 1) / kParameterAlignment *
                        kParameterAlignment;
    const int64_t from = std::max(run.first - shift, first);
    const int64_t to = std::min(end - shift, first + count);
    if (from >= to) continue;
    const uint64_t hash = NameHash(context.model->units[unit].parameters[p].name);
    const uint64_t mixed = hash ^ (config.rounding_seed * 0x9E3779B97F4A7C15u);
    pieces.push_back(
        {from, to - from, static_cast<uint32_t>(mixed ^ (mixed >> 32)), from + shift - run.first});
  }
  return pieces;
}

MasterMemory MasterOf(const Config& config, DType type, const Piece& piece, char* weight,
                      void* master, int64_t offset) {
  MasterMemory memory;
  if (type == DType::kF32) {
    memory.master = reinterpret_cast<float*>(weight) + offset;
    return memory;
  }
  memory.weight = weight + offset * SizeOf(type);
  memory.weight_type = type;
  memory.ties_away = config.weight_rounding == WeightRounding::kNearestAway;
  memory.random_key = piece.random_key;
  memory.first_element = piece.first_element;
  switch (config.master) {
    case MasterKind::kF32:
      memory.master = static_cast<float*>(master) + offset;
      break;
    case MasterKind::kSplit:
      memory.remainder = static_cast<uint16_t*>(master) + offset;
      break;
    case MasterKind::kNone:
      break;
  }
  return memory;
}

absl::Status EnqueuePiece(const Stream& stream, const Context& context, int unit, int s,
                          const Piece& piece, int64_t offset, const UpdateMemory& memory) {
  const Config& config = context.plan->config;
  const Segment& segment = context.unit(unit).segments[s];
  const DType stored = StoredType(config, segment);
  const auto fill = [&](auto& arguments) {
    arguments.gradient = static_cast<const char*>(memory.gradient) + offset * SizeOf(stored);
    arguments.gradient_type = stored;
    arguments.weights = MasterOf(config, segment.dtype, piece, static_cast<char*>(memory.weight),
                                 memory.master, offset);
    arguments.moment1 = memory.moment1 == nullptr ? nullptr : memory.moment1 + offset;
    arguments.groups = memory.groups + offset / kParameterAlignment;
    arguments.n = piece.count;
    arguments.scalars = memory.scalars;
    arguments.rows = memory.rows;
  };
  if (config.optimizer == OptimizerKind::kSgd) {
    SgdArguments sgd;
    fill(sgd);
    sgd.nesterov = config.nesterov;
    return Sgd(stream, sgd);
  }
  if (config.optimizer == OptimizerKind::kLion) {
    LionArguments lion;
    fill(lion);
    lion.beta2 = static_cast<float>(config.beta2);
    lion.one_minus_beta2 = static_cast<float>(1 - config.beta2);
    return Lion(stream, lion);
  }
  AdamArguments adam;
  fill(adam);
  adam.moment2 = memory.moment2 == nullptr ? nullptr : memory.moment2 + offset;
  adam.beta2 = static_cast<float>(config.beta2);
  adam.one_minus_beta2 = static_cast<float>(1 - config.beta2);
  adam.epsilon = static_cast<float>(config.epsilon);
  return Adam(stream, adam);
}

}  // namespace

absl::Status EnqueueUpdate(const Stream& stream, const Context& context, int unit, int segment,
                           int64_t first, int64_t count, const UpdateMemory& memory) {
  for (const Piece& piece : PiecesOf(context, unit, segment, first, count)) {
    ZERO_RETURN_IF_ERROR(
        EnqueuePiece(stream, context, unit, segment, piece, piece.first - first, memory));
  }
  return absl::OkStatus();
}

}  // namespace zero
