// Steps with states in memory of the host, at the end of a link, beside a trainer that computes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/samples.h"
#include "bench/stage_rank.h"

namespace zero::bench {

struct LinkRun {
  double bytes_per_second = 0;    // of the link, each way
  DType gradients = DType::kF32;  // stored
  bool check_overflow = true;     // false: units step during backward
  int64_t threads = 1;
  int64_t repeats = 1;
  int64_t steps = 3;  // of each repeat, one behind the other
  int64_t piece_elements = 1 << 20;
  int64_t buffer_count = 4;
};

// With compute of `share` times the host step; a third of it is forward.
struct LinkRow {
  double share = 0;
  Samples compute;    // seconds alone
  Samples step;       // seconds of one step with both
  Samples to_larger;  // step / max(compute, host step)
  Samples overlap;    // 1 - (step - compute) / host step
  // step / (max(backward, out) + max(forward, back)): where every gradient decides whether the step
  // applies, no update can begin before the last one is there. Else as to_larger.
  Samples to_bound;
};

struct LinkTimes {
  // Of the step without compute, alone: gradients to the host up to the decision, then updates and
  // weights back.
  Samples out;
  Samples back;
  std::vector<LinkRow> rows;
};

// Stage 2 on one rank. Every repeat runs everything once.
absl::StatusOr<LinkTimes> MeasureLinkSteps(const StageModel& model, const LinkRun& run);

}  // namespace zero::bench
