// A Hugging Face folder from a checkpoint, without a process group.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "zero/save/checkpoint_reader.h"
#include "zero/save/weights.h"

namespace zero {

// Writes the files that ShardedOptimizer::SaveWeights would write of the same state, byte for byte,
// and puts them in their place in the same way: a weight is its master, rounded as the checkpoint
// says or as `options` ask. Holds a few megabytes. kInvalidArgument: as SaveWeights. kDataLoss: the
// checkpoint is damaged. After an error the folder is as it was. `progress`, unless it is null, is
// told the bytes of tensors so far and those of all.
absl::StatusOr<WeightsSaved> ExportWeights(
    CheckpointReader& checkpoint, const std::string& folder, const SaveWeightsOptions& options,
    const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace zero
