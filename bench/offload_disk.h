// Steps of an optimizer that lies on a disk, beside plain requests to the same file.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "bench/disk_speed.h"
#include "bench/samples.h"
#include "bench/stage_rank.h"

namespace zero::bench {

struct DiskRun {
  std::string folder;             // which nothing else is in
  DType gradients = DType::kF32;  // stored
  int64_t threads = 1;
  int64_t repeats = 1;
  int64_t steps = 2;  // of each repeat, one behind the other
  int64_t piece_elements = 1 << 20;
  int64_t buffer_count = 4;
};

// Stage 3, with states, gradients and weights in `run.folder`.
Config DiskConfig(const StageModel& model, const DiskRun& run);

struct DiskTimes {
  DiskSpeed alone;      // of a file beside it
  int64_t read = 0;     // bytes of one step
  int64_t written = 0;  // likewise
  Samples seconds;      // of one step
  Samples plain;        // bytes a second of plain requests, both ways at once in that ratio
  Samples shares;       // a step's bytes a second as a share of those before and after it
};

// DiskConfig on one rank, which computes nothing.
absl::StatusOr<DiskTimes> MeasureDiskSteps(const StageModel& model, const DiskRun& run);

}  // namespace zero::bench
