// What --host_memory and --device_memory allow, and what would fit.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/memory.h"
#include "examples/train/offload_options.h"
#include "zero/config.h"

namespace zero::train {

// Of a rank.
struct PlannedMemory {
  std::array<int64_t, kMemoryCategories> bytes = {};
  Offload offload;  // what is offloaded in this stage
};

// The plan of a stage with other places. Called as often as there are flags to be tried.
using PlanWith =
    std::function<absl::StatusOr<PlannedMemory>(const OffloadOptions& places, int64_t stage)>;

// Bytes that are needed beyond a limit; negative: that are left. 0 where there is no limit.
struct MemoryFit {
  int64_t host_lacks = 0;    // of all ranks that share it, for what is offloaded
  int64_t device_lacks = 0;  // of each rank
  bool fits() const { return host_lacks <= 0 && device_lacks <= 0; }
};

// `ranks` share --host_memory: those of a process.
MemoryFit FitOf(const OffloadOptions& options, int64_t ranks, const PlannedMemory& planned);

// What --host_memory leaves each of `ranks` ranks of a process; negative: no limit.
int64_t HostCapacity(const OffloadOptions& options, int64_t ranks);

// That a rank's planned bytes in each of `stages`, ascending, are within --device_memory and its
// share of --host_memory. kResourceExhausted, one line, says of each limit that is passed what is
// needed for what and how much is too much, and which flags with which values were found to be
// within both. Others: as `plan`.
absl::Status CheckLimits(const OffloadOptions& options, const std::vector<int64_t>& stages,
                         int64_t ranks, const PlanWith& plan);

}  // namespace zero::train
