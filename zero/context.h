// What the parts of one optimizer share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/ordered_reduction.h"
#include "collectives/process_group.h"
#include "device/device.h"
#include "device/first_error.h"
#include "zero/model.h"
#include "zero/plan.h"

namespace zero {

// Owned by the optimizer, which outlives its parts. `communication` runs collectives in the order
// in which the driving thread issues them; `arithmetic` everything that the library computes.
struct Context {
  const Plan* plan = nullptr;
  const Model* model = nullptr;
  Device* device = nullptr;
  ProcessGroup* group = nullptr;
  const Stream* communication = nullptr;
  const Stream* arithmetic = nullptr;
  std::vector<const Stream*> offload;  // those of what is offloaded; none where nothing is
  // Memory of the host that the device reads: not 0 once a disk has failed. Null: there is none.
  const int32_t* disk_failed = nullptr;
  // What it failed of; null likewise.
  std::shared_ptr<const FirstError> disk_failure;

  int rank() const { return group->rank(); }
  // All streams of the optimizer. Those of what is offloaded come first: theirs is the error that
  // the others repeat.
  std::vector<const Stream*> streams() const {
    std::vector<const Stream*> all = offload;
    all.push_back(communication);
    all.push_back(arithmetic);
    return all;
  }
  const UnitLayout& unit(int u) const { return plan->layout.units[u]; }
  int units() const { return static_cast<int>(plan->layout.units.size()); }
  const std::string& name(int u) const { return model->units[u].name; }
};

// Zeroes the buffer and waits: what Create allocates after it may not fit, and then this goes.
absl::Status ZeroNow(const Context& context, const Buffer& buffer);

// Memory laid out by a BlockLayout.
class SegmentBlock {
 public:
  SegmentBlock() = default;
  // Allocates and zeroes, or takes over `adopted` as it is where it is not null.
  static absl::StatusOr<SegmentBlock> Create(const Context& context, const BlockLayout& layout,
                                             MemoryCategory category, const char* what,
                                             void* adopted = nullptr);

  // The segment's whole run, or this rank's slice of it; null where the layout leaves it out.
  char* at(int unit, int segment) const;
  // This rank's slice, of a whole segment or as it is; `element_bytes` of one element.
  char* slice(int unit, int segment, int64_t slice_elements, int64_t element_bytes) const;
  bool sliced() const { return layout_->sliced; }

 private:
  const BlockLayout* layout_ = nullptr;
  int rank_ = 0;
  Buffer memory_;
};

}  // namespace zero
