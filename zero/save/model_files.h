// A saved model in its staging folder: what SaveWeights and exports of checkpoints have in common.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "zero/save/staging_folder.h"
#include "zero/save/weight_files.h"
#include "zero/save/weights.h"

namespace zero {

// kInvalidArgument: no folder, a limit below 1, files that are none beside weights.
absl::Status CheckSaveOptions(const std::string& folder, const SaveWeightsOptions& options);

// Makes the files of weights, as yet without values, the index, and the files beside them. Returns
// the names of the latter.
absl::StatusOr<std::vector<std::string>> StageFiles(const SaveWeightsOptions& options,
                                                    const WeightFilesPlan& plan,
                                                    const StagingFolder& folder,
                                                    WeightFilesWriter& writer);

// When all values are written: whether a reader finds what was planned. Then all of it is on the
// disk.
absl::Status CheckStaged(const StagingFolder& folder, const WeightFilesWriter& writer);

// PublishModel; the folder stays where it must.
absl::Status PublishStaged(StagingFolder& folder, const WeightFilesPlan& plan,
                           const std::vector<std::string>& others);

}  // namespace zero
