#include "zero/reduction_plan.h"

#include <algorithm>

namespace zero {
namespace {

// Bytes of the largest unit's written gradients, and of a written element. Where a model mixes
// dtypes an element counts as the larger.
struct Largest {
  int64_t unit_bytes = 0;
  int64_t element_bytes = 0;
};

Largest FindLargest(const Layout& layout) {
  Largest largest;
  for (const UnitLayout& unit : layout.units) {
    largest.unit_bytes = std::max(largest.unit_bytes, unit.written_bytes());
    for (const Segment& segment : unit.segments) {
      if (!segment.trainable) continue;
      largest.element_bytes = std::max(largest.element_bytes, SizeOf(segment.dtype));
    }
  }
  return largest;
}

void PlaceInSlot(const UnitLayout& unit, int64_t& end, std::vector<int64_t>& offsets) {
  for (const Segment& segment : unit.segments) {
    offsets.push_back(segment.trainable ? end : -1);
    if (segment.trainable) end += segment.elements * SizeOf(segment.dtype);
  }
}

}  // namespace

ReductionPlan MakeReductionPlan(const Model& model, const Layout& layout,
                                int64_t reduce_bucket_size) {
  const Largest largest = FindLargest(layout);
  const int64_t step = layout.world_size * kSliceAlignment;
  const int64_t bucket = std::max(reduce_bucket_size / step * step, step);
  ReductionPlan plan;
  plan.call_bytes = largest.unit_bytes;
  if (largest.element_bytes > 0 && bucket < plan.call_bytes / largest.element_bytes) {
    plan.call_bytes = bucket * largest.element_bytes;
  }

  const int units = static_cast<int>(layout.units.size());
  plan.group_of.assign(units, -1);
  plan.slot_offsets.resize(units);
  int open = -1;  // the group that may still take neighbours
  int64_t open_bytes = 0;
  int shared_groups = 0;
  for (int u = units - 1; u >= 0; --u) {
    const UnitLayout& unit = layout.units[u];
    if (!unit.trainable()) continue;
    const int64_t bytes = unit.written_bytes();
    const bool resident = model.units[u].resident;
    if (resident || open < 0 || open_bytes + bytes > plan.call_bytes) {
      open = static_cast<int>(plan.groups.size());
      open_bytes = 0;
      plan.groups.emplace_back();
      if (!resident) plan.groups[open].slot = shared_groups++ % 2;
    }
    plan.group_of[u] = open;
    plan.groups[open].units.push_back(u);
    PlaceInSlot(unit, open_bytes, plan.slot_offsets[u]);
    ReductionGroup& group = plan.groups[open];
    if (resident) {
      open = -1;
      continue;
    }
    plan.slot_bytes.resize(std::max<size_t>(plan.slot_bytes.size(), group.slot + 1));
  }
  // Both shared slots are as large as the largest group, which is the largest unit that uses them.
  int64_t shared_bytes = 0;
  for (const ReductionGroup& group : plan.groups) {
    if (group.slot < 0) continue;
    int64_t bytes = 0;
    for (int u : group.units) bytes += layout.units[u].written_bytes();
    shared_bytes = std::max(shared_bytes, bytes);
  }
  std::fill(plan.slot_bytes.begin(), plan.slot_bytes.end(), shared_bytes);
  for (ReductionGroup& group : plan.groups) {
    if (group.slot >= 0) continue;
    group.slot = static_cast<int>(plan.slot_bytes.size());
    plan.slot_bytes.push_back(layout.units[group.units[0]].written_bytes());
  }
  return plan;
}

}  // namespace zero
