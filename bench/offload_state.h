// Filling, saving and loading an optimizer that lies on a disk, beside plain requests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/offload_disk.h"
#include "bench/samples.h"
#include "bench/stage_rank.h"

namespace zero::bench {

struct StateRow {
  std::string what;
  int64_t read = 0;     // bytes, from the disk
  int64_t written = 0;  // to it
  Samples seconds;
  Samples shares;  // of what plain requests before and after it would take for as many bytes
};

// Stage 3 on one rank with states, gradients and weights in `run.folder`, and its checkpoints
// beside them. Plain requests are those of MeasureDisk: alone where a row moves bytes one way, else
// both ways at once.
absl::StatusOr<std::vector<StateRow>> MeasureDiskState(const StageModel& model, const DiskRun& run);

}  // namespace zero::bench
