// The folder of --output.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "io/folder_lock.h"

namespace zero::tools {

// Keeps runs from `path` while this lives, if it is there. kInvalidArgument: it is a checkpoint;
// kFailedPrecondition: a run works in it. Errors name the flag.
absl::StatusOr<FolderLock> TakeOutput(const std::string& path);

}  // namespace zero::tools
