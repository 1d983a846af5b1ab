// Whether a checkpoint has the states that a run needs.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "examples/llama/config.h"
#include "examples/train/options.h"
#include "zero/save/checkpoint_manifest.h"

namespace zero::train {

// That the checkpoint `path` was written with the optimizer, the dtype and the frozen tensors that
// the flags say. kInvalidArgument lists what differs, by the flags, and says what can be done. What
// it lacks otherwise LoadCheckpoint says.
absl::Status CheckStates(const std::string& path, const CheckpointManifest& manifest,
                         const Options& options, const llama::LlamaConfig& model);

}  // namespace zero::train
