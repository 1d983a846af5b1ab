// The folder of --output.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "examples/train/run_folder.h"

namespace zero::tools {

// Makes `path` where it is missing, and keeps runs from it while this lives; then folders that were
// made and are still empty go. kInvalidArgument: it is a checkpoint, or cannot be written to;
// kFailedPrecondition: a run works in it. Errors name the flag.
absl::StatusOr<train::RunFolder> TakeOutput(const std::string& path);

}  // namespace zero::tools
