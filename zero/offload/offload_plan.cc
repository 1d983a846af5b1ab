#include "zero/offload/offload_plan.h"

#include <algorithm>
#include <cmath>

#include "io/aligned_bytes.h"
#include "zero/plan.h"

namespace zero {
namespace {

// Of what moves at once between a disk and whoever fills, reads or saves states: a section of a
// piece in fp32.
constexpr int64_t kLargestFrame = int64_t{1} << 22;

// Hands out aligned offsets.
class Records {
 public:
  int64_t Take(int64_t bytes) {
    const int64_t offset = end_;
    end_ += PaddedForDisk(bytes);
    return offset;
  }
  int64_t end() const { return end_; }

 private:
  int64_t end_ = 0;
};

int64_t Share(const Config& config, int64_t slice) {
  const double wanted = std::ceil(config.offload.ratio * static_cast<double>(slice) /
                                  static_cast<double>(kSliceAlignment));
  return std::min(slice, static_cast<int64_t>(wanted) * kSliceAlignment);
}

void PlanPieces(const Config& config, const Layout& layout, int moments, OffloadPlan& plan) {
  Records records;
  const bool on_disk = config.offload.optimizer == Place::kNvme;
  const bool weights_in_memory = config.offload.parameters == Place::kHost;
  int64_t largest_record = 0;
  int64_t largest_weights = 0;
  for (const UnitLayout& unit : layout.units) {
    std::vector<OffloadPiece>& pieces = plan.pieces.emplace_back();
    std::vector<int64_t>& groups = plan.group_map_offsets.emplace_back();
    for (int s = 0; s < static_cast<int>(unit.segments.size()); ++s) {
      const Segment& segment = unit.segments[s];
      const int64_t elements = OffloadedStateElements(config, segment);
      groups.push_back(elements > 0 ? plan.group_map_bytes : -1);
      plan.group_map_bytes += elements / kParameterAlignment;
      for (int64_t first = 0; first < elements; first += config.offload.piece_elements) {
        const int64_t count = std::min(config.offload.piece_elements, elements - first);
        const int64_t bytes = MakeRecordLayout(config, segment, moments, count).end();
        pieces.push_back({s, first, count, records.Take(bytes)});
        largest_record = std::max(largest_record, bytes);
        largest_weights = std::max(largest_weights, count * SizeOf(segment.dtype));
      }
    }
  }
  plan.record_bytes = records.end();
  plan.slot_weights = on_disk ? largest_record : 0;
  plan.slot_bytes = plan.slot_weights + (weights_in_memory ? 0 : PaddedForDisk(largest_weights));
  plan.slot_count = plan.slot_bytes > 0 ? config.offload.buffer_count : 0;
}

void PlanWeights(const Config& config, const Layout& layout, OffloadPlan& plan) {
  Records records;
  int64_t largest = 0;
  for (const UnitLayout& unit : layout.units) {
    std::vector<int64_t>& offsets = plan.weight_offsets.emplace_back();
    for (const Segment& segment : unit.segments) {
      const int64_t elements = OffloadedWeightElements(config, segment);
      const int64_t element = SizeOf(segment.dtype);
      offsets.push_back(elements > 0 ? records.Take(elements * element) : -1);
      largest = std::max(largest, std::min(elements, config.offload.piece_elements) * element);
    }
  }
  plan.weight_bytes = records.end();
  if (config.offload.parameters != Place::kNvme || largest == 0) return;
  plan.weight_slot_bytes = PaddedForDisk(largest);
  plan.weight_slot_count = config.offload.buffer_count;
}

void PlanSums(const Config& config, const Layout& layout, const ReductionPlan& reduction,
              OffloadPlan& plan) {
  for (const UnitLayout& unit : layout.units) {
    plan.sum_offsets.emplace_back(unit.segments.size(), -1);
  }
  for (const ReductionGroup& group : reduction.groups) {
    int64_t end = 0;
    for (int u : group.units) {
      const std::vector<Segment>& segments = layout.units[u].segments;
      for (size_t s = 0; s < segments.size(); ++s) {
        if (!segments[s].trainable || segments[s].elements == 0) continue;
        plan.sum_offsets[u][s] = end;
        end += PaddedForDisk(segments[s].slice * SizeOf(StoredType(config, segments[s])));
      }
    }
    plan.sum_slot_bytes = std::max(plan.sum_slot_bytes, end);
  }
}

}  // namespace

int64_t OffloadedStateElements(const Config& config, const Segment& segment) {
  if (config.offload.optimizer == Place::kDevice || !segment.trainable) return 0;
  return Share(config, segment.slice);
}

int64_t OffloadedWeightElements(const Config& config, const Segment& segment) {
  if (config.offload.parameters == Place::kDevice) return 0;
  return segment.trainable ? Share(config, segment.slice) : segment.slice;
}

bool UpdatesDuringBackward(const Config& config) {
  return config.offload.optimizer != Place::kDevice && !config.check_overflow &&
         config.clip_norm == 0 && !config.clip_schedule;
}

bool UpdateReadsWeight(const Config& config, const Segment& segment) {
  return segment.dtype == DType::kF32 || config.master != MasterKind::kF32;
}

int64_t SectionBytes(const Config& config, const Segment& segment, int moments, Section section) {
  switch (section) {
    case Section::kGradient:
      return SizeOf(StoredType(config, segment));
    case Section::kMaster:
      return MasterBytes(config, segment);
    case Section::kMoment1:
      return moments >= 1 ? 4 : 0;
    case Section::kMoment2:
      return moments >= 2 ? 4 : 0;
  }
  return 0;
}

RecordLayout MakeRecordLayout(const Config& config, const Segment& segment, int moments,
                              int64_t elements) {
  RecordLayout layout;
  for (int i = 0; i < kSections; ++i) {
    const int64_t bytes = SectionBytes(config, segment, moments, static_cast<Section>(i));
    layout.offsets[i + 1] = layout.offsets[i] + PaddedForDisk(elements * bytes);
  }
  return layout;
}

std::vector<DiskSection> DiskSections(const Config& config, const Layout& layout, int moments,
                                      const OffloadPlan& plan) {
  std::vector<DiskSection> sections;
  const auto add = [&](std::optional<Section> section, int64_t offset, int64_t bytes) {
    if (bytes > 0) sections.push_back({section, offset, bytes});
  };
  for (size_t u = 0; config.offload.optimizer == Place::kNvme && u < layout.units.size(); ++u) {
    for (const OffloadPiece& piece : plan.pieces[u]) {
      const Segment& segment = layout.units[u].segments[piece.segment];
      const RecordLayout record = MakeRecordLayout(config, segment, moments, piece.count);
      for (int i = 0; i < kSections; ++i) {
        const auto section = static_cast<Section>(i);
        add(section, piece.record + record.at(section),
            piece.count * SectionBytes(config, segment, moments, section));
      }
    }
  }
  for (size_t u = 0; config.offload.parameters == Place::kNvme && u < layout.units.size(); ++u) {
    for (size_t s = 0; s < layout.units[u].segments.size(); ++s) {
      const Segment& segment = layout.units[u].segments[s];
      add(std::nullopt, plan.disk_weights + plan.weight_offsets[u][s],
          OffloadedWeightElements(config, segment) * SizeOf(segment.dtype));
    }
  }
  return sections;
}

OffloadPlan MakeOffloadPlan(const Config& config, const Layout& layout,
                            const ReductionPlan& reduction, int moments) {
  OffloadPlan plan;
  if (config.offload.optimizer == Place::kDevice) return plan;
  plan.stores_gradients = config.stage >= 2 && config.offload.gradients;
  PlanPieces(config, layout, moments, plan);
  PlanWeights(config, layout, plan);
  if (plan.stores_gradients) PlanSums(config, layout, reduction, plan);
  plan.disk_weights = config.offload.optimizer == Place::kNvme ? plan.record_bytes : 0;
  plan.disk_bytes =
      plan.disk_weights + (config.offload.parameters == Place::kNvme ? plan.weight_bytes : 0);
  for (const DiskSection& section : DiskSections(config, layout, moments, plan)) {
    plan.disk_frame_bytes = std::max(plan.disk_frame_bytes, PaddedForDisk(section.bytes));
  }
  plan.disk_frame_bytes = std::min(plan.disk_frame_bytes, kLargestFrame);
  return plan;
}

}  // namespace zero
