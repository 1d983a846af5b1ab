// Keeps a run from writing over what it reads.
#pragma once

#include "absl/status/status.h"
#include "examples/train/options.h"

namespace zero::train {

// kInvalidArgument names the two flags where --metrics or a file of --output is the text, the
// model's config.json, or each other; links are followed. Changes nothing.
absl::Status CheckOverwrites(const Options& options);

}  // namespace zero::train
