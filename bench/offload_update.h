// The host's share of an offloaded step: AdamW over records of pieces, beside the triad.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/samples.h"

namespace zero::bench {

struct UpdateRow {
  std::string gradients;  // their dtype
  std::string masters;
  double bytes = 0;  // read and written per parameter, without lines read only to be overwritten
  Samples seconds;
  Samples shares;   // of the triad's speed that ran before and after it, of 1
  Samples to_fp32;  // time, as a share of the row with an fp32 master and such gradients
};

struct UpdateTimes {
  Samples triad_seconds;
  double triad_bytes = 0;
  std::vector<UpdateRow> rows;
};

// Offloaded states of `elements` bf16 weights, laid out as OffloadPlan says, and their updates as
// OffloadPipeline enqueues them, on `threads` threads. Each is verified against the scalar formulas
// first, bit for bit (kInternal). Every repeat runs everything once, with a triad between all rows.
absl::StatusOr<UpdateTimes> MeasureUpdates(int64_t elements, int64_t threads, int64_t repeats);

// What that takes of memory.
double UpdateBytes(int64_t elements);

}  // namespace zero::bench
