// How the learning rate goes over a run.
#pragma once

#include <cstdint>
#include <string>

#include "zero/config.h"

namespace zero::train {

// The rate of applied step c = 1 ... steps is `peak` times
//   c / warmup                    for c < warmup
//   1                             "constant"
//   1 - p                         "linear"
//   (1 + cos(pi p)) / 2           "cosine"
// where p = (c - warmup) / (steps + 1 - warmup): above 0 at the last step, 0 past it.
Schedule MakeSchedule(const std::string& kind, double peak, int64_t warmup, int64_t steps);

}  // namespace zero::train
