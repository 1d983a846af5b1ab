// In which groups, slots and calls the gradients of the units are reduced.
#pragma once

#include <cstdint>
#include <vector>

#include "zero/config.h"
#include "zero/layout.h"
#include "zero/model.h"

namespace zero {

// Neighbouring units whose gradients share a slot and go out together.
struct ReductionGroup {
  std::vector<int> units;  // in the order of backward: descending
  int slot = -1;           // index of the shared slot; a resident unit has one of its own
};

struct ReductionPlan {
  std::vector<ReductionGroup> groups;  // in the order of backward
  std::vector<int> group_of;           // by unit; -1 where nothing is trainable
  int64_t call_bytes = 0;              // most bytes that one call receives, over all ranks

  // Gradient slots: what the trainer writes where that is not what is stored.
  std::vector<int64_t> slot_bytes;                 // by slot
  std::vector<std::vector<int64_t>> slot_offsets;  // [unit][segment], within the unit's slot
};

// The bucket is `reduce_bucket_size` elements, rounded down to a multiple of world size x 128 (at
// least that), and no more than the largest unit. Groups hold neighbours as long as they fit the
// bucket; a larger unit is a group of its own and is cut into calls of at most one bucket. There
// are up to two shared slots, used in turn, each as large as the largest group.
ReductionPlan MakeReductionPlan(const Model& model, const Layout& layout,
                                int64_t reduce_bucket_size);

}  // namespace zero
