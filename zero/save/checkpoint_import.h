// A checkpoint from weights, without a process group.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "zero/config.h"
#include "zero/model.h"
#include "zero/sharded_optimizer.h"

namespace zero {

// Makes `folder`/step-00000000: what SaveCheckpoint of one rank would make before the first step,
// with the masters (and frozen weights) that `source` gives, moments of zeros, and the loss scale
// that `config` starts with. It has no hyper-parameters, so that none differ from those of the run
// that loads it. Asks `source` for elements in their order and holds a few megabytes. Returns the
// path. kAlreadyExists: there is such a checkpoint. kInvalidArgument: as MakePlan, or a value that
// is inf or NaN. After any error nothing is left but perhaps an empty `folder`. `progress`, unless
// it is null, is told the bytes of state so far and those of all.
absl::StatusOr<std::string> ImportCheckpoint(
    const Config& config, const Model& model, const Source& source, const std::string& folder,
    const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace zero
