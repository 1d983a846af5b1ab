// The stages side by side: what each needs, sends and takes on one model.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "examples/train/rank_trainer.h"

namespace zero::train {

// Trains `job` in stages 0 to 3, options.repeats times over, and prints a table: bytes of a rank by
// category and bytes sent in a step, each beside the plan's, the median step time and its ratio to
// stage 0. The repeats of the stages alternate, so that a disturbance of the machine meets all.
// kInternal if a byte differs from the plan. Bits of StopSignals, where some ended it before.
absl::StatusOr<uint64_t> CompareStages(const Job& job);

}  // namespace zero::train
