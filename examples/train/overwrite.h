// Keeps a run from writing over what it reads.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "examples/train/options.h"

namespace zero::train {

// kInvalidArgument names the two flags where --metrics or a file of --output is the text, the
// model's config.json, the file of --config, or each other; or --checkpoint_dir is the folder of
// the model; or one of the three the flag that would write into a checkpoint. Links are followed.
// Changes nothing.
absl::Status CheckOverwrites(const Options& options);

// kInvalidArgument names `flag` where `path` is a checkpoint, sound or not: they are verified,
// pruned and copied as a whole, and nothing else may be in them. `which`: what else is said of it.
absl::Status RefuseCheckpoint(const std::string& flag, const std::string& path,
                              const std::string& which = "");

}  // namespace zero::train
