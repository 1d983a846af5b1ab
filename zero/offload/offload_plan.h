// What of a rank's state is offloaded, and where each element of it lies.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "zero/config.h"
#include "zero/layout.h"
#include "zero/reduction_plan.h"

namespace zero {

// Elements of this rank's slice of a segment that are offloaded, the first of the slice:
// ceil(ratio x slice / 128) x 128 of the states of trainable ones; of weights as many of trainable
// and all of frozen ones. 0 where nothing is.
int64_t OffloadedStateElements(const Config& config, const Segment& segment);
int64_t OffloadedWeightElements(const Config& config, const Segment& segment);

// Whether the update of an offloaded piece reads its weight, which is the master or part of it.
bool UpdateReadsWeight(const Config& config, const Segment& segment);

// Whether a step can be decided, and offloaded units updated, before the gradients of all units are
// known: nothing is clipped, and no gradient refuses the step.
bool UpdatesDuringBackward(const Config& config);

// A record is what belongs to one piece of a slice: sections one behind the other.
enum class Section : uint8_t { kGradient, kMaster, kMoment1, kMoment2 };
inline constexpr int kSections = 4;

// Bytes of an element in a section; 0: a record has none of it.
int64_t SectionBytes(const Config& config, const Segment& segment, int moments, Section section);

// Byte offsets of a record's sections, and its end.
struct RecordLayout {
  std::array<int64_t, kSections + 1> offsets = {};
  int64_t at(Section section) const { return offsets[static_cast<size_t>(section)]; }
  int64_t end() const { return offsets[kSections]; }
};
RecordLayout MakeRecordLayout(const Config& config, const Segment& segment, int moments,
                              int64_t elements);

struct OffloadPiece {
  int segment = 0;
  int64_t first = 0;   // element of this rank's slice
  int64_t count = 0;   // a multiple of 128
  int64_t record = 0;  // where its record begins
};

struct OffloadPlan {
  // By unit, in the order of segments and elements.
  std::vector<std::vector<OffloadPiece>> pieces;
  int64_t record_bytes = 0;  // of all records

  // Offloaded slices of weights: byte offsets, [unit][segment], -1 where nothing is offloaded.
  std::vector<std::vector<int64_t>> weight_offsets;
  int64_t weight_bytes = 0;

  // Slots that pieces pass through: the record, where records are on a disk, and the weights, where
  // they are not in memory of the host. Offset of the weights within a slot.
  int64_t slot_count = 0;
  int64_t slot_bytes = 0;
  int64_t slot_weights = 0;
  // And slots of weights alone, on their way from the disk to a gather.
  int64_t weight_slot_count = 0;
  int64_t weight_slot_bytes = 0;

  // Where gradients are stored with the records: two slots on the device, used in turn, for the
  // sums of one reduction group each; offsets of a unit's slices within its slot.
  int64_t sum_slot_bytes = 0;
  std::vector<std::vector<int64_t>> sum_offsets;  // [unit][segment], -1

  bool stores_gradients = false;  // false: gradients come once, after the last pass
  int64_t group_map_bytes = 0;    // one byte for 64 offloaded elements
  std::vector<std::vector<int64_t>> group_map_offsets;  // [unit][segment], -1

  int64_t disk_bytes = 0;    // of this rank's file
  int64_t disk_weights = 0;  // where weights begin in it; records begin at 0
  // Memory that states pass through when they are filled, read or saved: DiskWindow::kFrames of
  // so many bytes.
  int64_t disk_frame_bytes = 0;
};

// Bytes of one section of a record, or of a slice's weights, in the file.
struct DiskSection {
  std::optional<Section> section;  // empty: weights
  int64_t offset = 0;
  int64_t bytes = 0;
};
// All there are, in the order of the file, which for each kind is that of units and elements.
std::vector<DiskSection> DiskSections(const Config& config, const Layout& layout, int moments,
                                      const OffloadPlan& plan);

// `moments`: that the optimizer keeps of an element. Empty where nothing is offloaded.
OffloadPlan MakeOffloadPlan(const Config& config, const Layout& layout,
                            const ReductionPlan& reduction, int moments);

}  // namespace zero
