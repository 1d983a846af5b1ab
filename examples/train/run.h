// A training run: all ranks, from the first allocation to the last report.
#pragma once

#include "absl/status/status.h"
#include "examples/train/rank_trainer.h"

namespace zero::train {

// Runs the ranks of `job` as threads and joins them. The first error of any rank, with its number;
// the others end with it. Where the job has a group, its one rank is run on this thread.
absl::Status RunJob(const Job& job);

}  // namespace zero::train
