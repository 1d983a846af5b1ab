// What a checkpoint of an optimizer consists of, before anything is written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/decide.h"
#include "zero/model.h"
#include "zero/plan.h"
#include "zero/save/checkpoint_manifest.h"

namespace zero {

// "rank-00003-of-00008.safetensors", and the file beside it in which a rank tells the one that
// writes the manifest what its file became; it goes before the manifest comes.
std::string CheckpointFileName(int rank, int ranks);
std::string ChecksumsFileName(int rank, int ranks);
std::string FormatChecksums(int64_t bytes, const std::vector<uint32_t>& checksums);
// kDataLoss names `path`.
absl::Status ParseChecksums(const std::string& path, const std::string& text, CheckpointFile& file);

// The parameters of `model` with the states that they have in this plan, in registration order.
std::vector<CheckpointParameter> CheckpointParameters(const Plan& plan, const Model& model);

// Everything but the step, the counts, the attributes and what the files became.
CheckpointManifest DescribeCheckpoint(const Plan& plan, const Model& model);

CheckpointCounts CountsOf(int64_t steps, const StepState& state);
StepState StateOf(const CheckpointCounts& counts);

}  // namespace zero
