// Files written and read in order by one thread and nothing else: what a disk can do.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace zero::bench {

// Writes `bytes` bytes to a new file, 1 MiB a call, and syncs it.
absl::Status WritePlain(const std::string& path, int64_t bytes);
// Reads a whole file, 1 MiB a call.
absl::Status ReadPlain(const std::string& path);
// Asks the system to forget what it holds of a file that is on the disk, so that it is read from
// there. A request: on a file system in memory nothing is forgotten.
absl::Status Forget(const std::string& path);

}  // namespace zero::bench
