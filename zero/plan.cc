#include "zero/plan.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "kernels/decide.h"
#include "kernels/kernels.h"
#include "offload/disk_window.h"
#include "zero/gather_schedule.h"
#include "zero/parameter_groups.h"
#include "zero/rank_exchange.h"
#include "zero/save/checkpoint_saver.h"

namespace zero {
namespace {

// One 16-bit dtype, and what only bf16 can.
absl::Status CheckDTypes(const Config& config, const Model& model) {
  const Parameter* first = nullptr;  // of 16 bits
  for (const Unit& unit : model.units) {
    for (const Parameter& parameter : unit.parameters) {
      if (parameter.dtype == DType::kF32) continue;
      if (first != nullptr && first->dtype != parameter.dtype) {
        return absl::InvalidArgumentError(absl::StrCat(
            "parameter '", parameter.name, "' is ", Name(parameter.dtype), " and '", first->name,
            "' is ", Name(first->dtype), ": a model has fp32 and one 16-bit dtype at most"));
      }
      first = &parameter;
    }
  }
  if (first == nullptr || first->dtype == DType::kBF16) return absl::OkStatus();
  const auto refuse = [&](const char* what) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is for bf16 weights; parameter '", first->name, "' is fp16"));
  };
  if (config.master == MasterKind::kSplit) return refuse("master: a split master");
  if (config.master == MasterKind::kNone) return refuse("master: an update without master weights");
  if (config.weight_rounding == WeightRounding::kNearestAway) {
    return refuse("weight_rounding: nearest_away");
  }
  return absl::OkStatus();
}

absl::Status CheckGroups(const Config& config, const Model& model) {
  const int groups = static_cast<int>(config.groups.size());
  for (const Unit& unit : model.units) {
    for (const Parameter& parameter : unit.parameters) {
      if (parameter.group < 0 || parameter.group >= groups) {
        return absl::InvalidArgumentError(
            absl::StrCat("parameter '", parameter.name, "': group ", parameter.group,
                         " does not exist; the configuration has ", groups));
      }
      const int wanted = GroupOf(config, parameter);
      if (parameter.group == wanted && !(parameter.trainable && config.groups[wanted].frozen)) {
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter '", parameter.name, "' is ",
          parameter.trainable ? "trainable in group " : "in group ", parameter.group,
          ", but groups[", wanted, "]", config.groups[wanted].frozen ? ", frozen," : "",
          " is for it: call AssignGroups first"));
    }
  }
  return absl::OkStatus();
}

int MomentsOf(const Config& config) {
  switch (config.optimizer) {
    case OptimizerKind::kAdamW:
    case OptimizerKind::kAdam:
      return 2;
    case OptimizerKind::kLion:
      return 1;
    case OptimizerKind::kSgd:
      return config.momentum > 0 || config.beta1_schedule ? 1 : 0;
  }
  return 0;
}

void PlanBlocks(Plan& plan) {
  const Config& config = plan.config;
  const bool sliced_states = config.stage >= 1;
  const int moments = MomentsOf(config);
  plan.moments = moments;
  plan.offload = MakeOffloadPlan(config, plan.layout, plan.reduction, moments);
  // Of n elements of a slice, those that stay on the device.
  const auto kept = [&](const Segment& segment, int64_t n) {
    return n - OffloadedStateElements(config, segment);
  };
  plan.weights =
      MakeBlockLayout(plan.layout, config.stage >= 3, [&](const Segment& segment, int64_t n) {
        return (n - OffloadedWeightElements(config, segment)) * SizeOf(segment.dtype);
      });
  plan.gradients =
      MakeBlockLayout(plan.layout, config.stage >= 2, [&](const Segment& segment, int64_t n) {
        const int64_t stored = plan.offload.stores_gradients ? kept(segment, n) : n;
        return segment.trainable ? stored * SizeOf(StoredType(config, segment)) : 0;
      });
  plan.masters =
      MakeBlockLayout(plan.layout, sliced_states, [&](const Segment& segment, int64_t n) {
        return kept(segment, n) * MasterBytes(config, segment);
      });
  const auto moment_bytes = [&](bool used) {
    return [&kept, used](const Segment& segment, int64_t n) {
      return used && segment.trainable ? kept(segment, n) * 4 : 0;
    };
  };
  plan.moment1 = MakeBlockLayout(plan.layout, sliced_states, moment_bytes(moments >= 1));
  plan.moment2 = MakeBlockLayout(plan.layout, sliced_states, moment_bytes(moments >= 2));
  plan.group_map =
      MakeBlockLayout(plan.layout, sliced_states, [](const Segment& segment, int64_t n) {
        return segment.trainable ? n / kParameterAlignment : 0;
      });
}

// Gradients may be sent in another dtype than they are written or stored in.
bool Converts(const Plan& plan) {
  for (const UnitLayout& unit : plan.layout.units) {
    for (const Segment& segment : unit.segments) {
      if (!segment.trainable) continue;
      for (DType source : {segment.dtype, StoredType(plan.config, segment)}) {
        if (SentType(plan.config, source) != source) return true;
      }
    }
  }
  return false;
}

// Hands out 64-byte aligned offsets.
class Arena {
 public:
  int64_t Take(int64_t bytes) {
    const int64_t offset = end_;
    end_ = (end_ + bytes + 63) / 64 * 64;
    return offset;
  }
  int64_t bytes() const { return end_; }

 private:
  int64_t end_ = 0;
};

void PlanScalars(Plan& plan) {
  const int64_t groups = static_cast<int64_t>(plan.config.groups.size());
  int64_t segments = 0;
  int64_t longest = 0;  // elements of a whole segment
  for (const UnitLayout& unit : plan.layout.units) {
    for (const Segment& segment : unit.segments) {
      if (!segment.trainable || segment.elements == 0) continue;
      ++segments;
      longest = std::max(longest, segment.elements);
    }
  }
  Arena arena;
  ScalarLayout& layout = plan.scalars;
  layout.norm_rows = segments;
  layout.state = arena.Take(sizeof(StepState));
  layout.scalars = arena.Take(sizeof(StepScalars));
  layout.groups = arena.Take(groups * sizeof(GroupScalars));
  layout.rows = arena.Take(kStepRows * sizeof(StepRow));
  layout.row_groups = arena.Take(kStepRows * groups * sizeof(GroupScalars));
  layout.own_norm = arena.Take(sizeof(RankNorm));
  layout.rank_norms = arena.Take(plan.world_size * sizeof(RankNorm));
  layout.record = arena.Take(sizeof(StepRecord));
  layout.first_written = arena.Take(sizeof(int64_t));
  if (plan.config.check_gradients) {
    layout.written_part = arena.Take(sizeof(NormPartial));
    layout.written_scratch = arena.Take(NormChunks(longest) * sizeof(NormPartial));
  }
  layout.failures = arena.Take(kStepRows * sizeof(int32_t));
  layout.partials = arena.Take(segments * sizeof(NormPartial));
  layout.bases = arena.Take(segments * sizeof(int64_t));
  layout.scratch = arena.Take(NormChunks(longest / plan.world_size) * sizeof(NormPartial));
  layout.group_map = arena.Take(plan.group_map.bytes);
  layout.bytes = arena.bytes();
}

// Bytes of this rank's slice of a unit's weights.
int64_t SliceBytes(const UnitLayout& unit) {
  int64_t bytes = 0;
  for (const Segment& segment : unit.segments) bytes += segment.slice * SizeOf(segment.dtype);
  return bytes;
}

// What one pass over all units, forward and backward, gathers.
struct Gathers {
  int64_t slice_bytes = 0;
  OffloadTraffic loaded;
};
Gathers SimulatePass(const Plan& plan, GatherSchedule& schedule) {
  const int units = static_cast<int>(plan.layout.units.size());
  std::vector<int> sequence(2 * units);
  std::iota(sequence.begin(), sequence.begin() + units, 0);
  std::copy(sequence.rend() - units, sequence.rend(), sequence.begin() + units);
  schedule.BeginPass();
  Gathers all;
  for (int unit : sequence) {
    // Cannot fail: every unit is released before the next is acquired.
    const absl::StatusOr<std::vector<int>> gathers = schedule.Acquire(unit);
    for (int gathered : *gathers) {
      all.slice_bytes += SliceBytes(plan.layout.units[gathered]);
      all.loaded += GatherTraffic(plan.config, plan.layout.units[gathered]);
    }
    schedule.Release(unit);
  }
  return all;
}

void PlanGathers(const Model& model, Plan& plan) {
  GatherSchedule schedule(model, plan.config.prefetch);
  const Gathers first = SimulatePass(plan, schedule);
  const Gathers later = SimulatePass(plan, schedule);
  plan.first_pass_gathered = first.slice_bytes;
  plan.first_pass_loaded = first.loaded;
  plan.later_pass_gathered = later.slice_bytes;
  plan.later_pass_loaded = later.loaded;
  int64_t largest = 0;
  int64_t resident = 0;
  for (size_t u = 0; u < model.units.size(); ++u) {
    const int64_t bytes = plan.layout.units[u].weight_bytes();
    if (model.units[u].resident) {
      resident += bytes;
    } else {
      largest = std::max(largest, bytes);
    }
  }
  plan.bytes[static_cast<int>(MemoryCategory::kGatheredWeights)] =
      schedule.shared_slots() * largest + resident;
}

}  // namespace

DType StoredType(const Config& config, const Segment& segment) {
  return config.accumulation == DType::kF32 ? DType::kF32 : segment.dtype;
}

DType SentType(const Config& config, DType source) { return config.communication.value_or(source); }

int64_t MasterBytes(const Config& config, const Segment& segment) {
  if (!segment.trainable || segment.dtype == DType::kF32) return 0;
  switch (config.master) {
    case MasterKind::kF32:
      return 4;
    case MasterKind::kSplit:
      return 2;
    case MasterKind::kNone:
      return 0;
  }
  return 0;
}

int64_t OffloadScalarBytes(const Plan& plan) {
  if (plan.config.offload.optimizer == Place::kDevice) return 0;
  return static_cast<int64_t>(sizeof(StepScalars)) +
         static_cast<int64_t>(plan.config.groups.size() * sizeof(GroupScalars)) +
         plan.offload.group_map_bytes;
}

absl::StatusOr<Plan> MakePlan(const Config& config, const Model& model, int world_size) {
  ZERO_RETURN_IF_ERROR(Validate(config));
  ZERO_RETURN_IF_ERROR(CheckGroups(config, model));
  ZERO_RETURN_IF_ERROR(CheckDTypes(config, model));
  Plan plan;
  plan.config = config;
  plan.world_size = world_size;
  ZERO_ASSIGN_OR_RETURN(plan.layout, MakeLayout(model, world_size));
  plan.reduction = MakeReductionPlan(model, plan.layout, config.reduce_bucket_size);
  PlanBlocks(plan);
  PlanScalars(plan);

  const auto set = [&](MemoryCategory category, int64_t bytes) {
    plan.bytes[static_cast<int>(category)] = bytes;
  };
  set(MemoryCategory::kWeights, plan.weights.bytes);
  set(MemoryCategory::kGradients, plan.gradients.bytes);
  set(MemoryCategory::kOptimizerStates,
      plan.masters.bytes + plan.moment1.bytes + plan.moment2.bytes);
  if (config.stage == 3) PlanGathers(model, plan);

  plan.uses_gradient_slots = config.stage >= 2;
  for (const UnitLayout& unit : plan.layout.units) {
    for (const Segment& segment : unit.segments) {
      if (segment.trainable && StoredType(config, segment) != segment.dtype) {
        plan.uses_gradient_slots = true;
      }
    }
  }
  if (plan.uses_gradient_slots) {
    const std::vector<int64_t>& slots = plan.reduction.slot_bytes;
    set(MemoryCategory::kGradientSlots, std::accumulate(slots.begin(), slots.end(), int64_t{0}));
  }
  if (world_size > 1) {
    set(MemoryCategory::kReceive, 2 * plan.reduction.call_bytes);
    if (Converts(plan)) plan.send_bytes = plan.reduction.call_bytes;
    set(MemoryCategory::kSend, plan.send_bytes);
  }
  set(MemoryCategory::kScalars, plan.scalars.bytes);
  const int64_t groups = static_cast<int64_t>(config.groups.size());
  const int64_t transfer_bytes = kTransferElements * 4;
  // For saving, and for a checkpoint that is being written.
  set(MemoryCategory::kStaging, transfer_bytes + 2 * RankExchange::DeviceBytes(world_size));
  set(MemoryCategory::kHostStaging,
      kStepRows * (kStepRows * (static_cast<int64_t>(sizeof(StepRow)) +
                                groups * static_cast<int64_t>(sizeof(GroupScalars))) +
                   static_cast<int64_t>(sizeof(StepRecord))) +
          2 * transfer_bytes + 2 * RankExchange::HostBytes(world_size) + CheckpointSlotBytes(plan) +
          OffloadScalarBytes(plan) + (plan.offload.disk_bytes > 0 ? kDiskFlagBytes : 0));
  const OffloadPlan& offload = plan.offload;
  if (config.offload.optimizer == Place::kHost) {
    set(MemoryCategory::kHostStates, offload.record_bytes);
  }
  if (config.offload.parameters == Place::kHost) {
    set(MemoryCategory::kHostWeights, offload.weight_bytes);
  }
  set(MemoryCategory::kHostSlots, offload.slot_count * offload.slot_bytes +
                                      offload.weight_slot_count * offload.weight_slot_bytes +
                                      DiskWindow::kFrames * offload.disk_frame_bytes);
  set(MemoryCategory::kOffloadSlots, 2 * offload.sum_slot_bytes);
  return plan;
}

int64_t Plan::total_bytes() const {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

int64_t Plan::device_bytes() const {
  int64_t host = 0;
  for (int c = 0; c < kMemoryCategories; ++c) {
    if (IsHost(static_cast<MemoryCategory>(c))) host += bytes[static_cast<size_t>(c)];
  }
  return total_bytes() - host;
}

WireBytes Plan::step_wire(int64_t micro_batches) const {
  int64_t written = 0;  // bytes of slices
  int64_t stored = 0;
  int64_t sent = 0;
  for (const UnitLayout& unit : layout.units) {
    for (const Segment& segment : unit.segments) {
      if (!segment.trainable) continue;
      written += segment.slice * SizeOf(segment.dtype);
      const DType stored_type = StoredType(config, segment);
      stored += segment.slice * SizeOf(stored_type);
      const bool as_written = config.stage >= 2 || micro_batches == 1;
      sent += segment.slice * SizeOf(SentType(config, as_written ? segment.dtype : stored_type));
    }
  }
  const int64_t others = world_size - 1;
  WireBytes wire;
  // The loss weights first, where a step is decided without the norms.
  const int64_t exchanges = UpdatesDuringBackward(config) ? 2 : 1;
  wire[kControl] = others * exchanges * static_cast<int64_t>(sizeof(RankNorm));
  wire[kReduceGradients] = others * (config.stage >= 2 ? micro_batches : 1) * sent;
  if (config.stage == 0) wire[kGatherGradients] = others * stored;
  if (config.stage == 1 || config.stage == 2) wire[kGatherWeights] = others * written;
  if (config.stage == 3) {
    wire[kGatherWeights] =
        others * (first_pass_gathered + (micro_batches - 1) * later_pass_gathered);
  }
  return wire;
}

OffloadTraffic Plan::step_offload(int64_t micro_batches) const {
  OffloadTraffic traffic = UpdateTraffic(config, layout, offload, moments, micro_batches);
  traffic += first_pass_loaded;
  for (int64_t pass = 1; pass < micro_batches; ++pass) traffic += later_pass_loaded;
  return traffic;
}

int64_t Plan::weight_offset(int unit, int parameter) const {
  const Run& run = layout.units[unit].parameters[parameter];
  const int64_t start = weights.offsets[unit][run.segment];
  const DType type = layout.units[unit].segments[run.segment].dtype;
  return start < 0 ? -1 : start + run.first * SizeOf(type);
}

int64_t Plan::gradient_offset(int unit, int parameter) const {
  const Run& run = layout.units[unit].parameters[parameter];
  const int64_t start = gradients.offsets[unit][run.segment];
  const Segment& segment = layout.units[unit].segments[run.segment];
  return start < 0 ? -1 : start + run.first * SizeOf(StoredType(config, segment));
}

}  // namespace zero
