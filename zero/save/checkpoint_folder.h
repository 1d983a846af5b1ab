// The checkpoints of a run: one folder that holds a folder for each.
//
// A checkpoint is made under a temporary name, ".step-00000100.<16 hex digits>.tmp", gets its
// manifest last and then its name, "step-00000100". It is complete as soon as it has its manifest:
// what counts is the manifest and the sizes of the files, not the name. One that is to be removed
// is called ".step-00000100.removed" first, and does not count from then on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace zero {

// "step-00000100"
std::string CheckpointName(int64_t step);

struct FoundCheckpoint {
  std::string path;
  int64_t step = 0;
};

// The complete checkpoints in `folder`, oldest first; of one step, that with a temporary name last.
// Their checksums are not looked at. kNotFound: no such folder.
absl::StatusOr<std::vector<FoundCheckpoint>> FindCheckpoints(const std::string& folder);

// The last of them. kNotFound: there is none; says what was found instead, and what it lacks.
absl::StatusOr<FoundCheckpoint> LatestCheckpoint(const std::string& folder);

// Gives the complete checkpoint `folder`/`temporary` the name of its step, in the place of one that
// has it. Returns when that is on the disk.
absl::Status PublishCheckpoint(const std::string& folder, const std::string& temporary,
                               int64_t step);

// Gives complete checkpoints with a temporary name their own, in the place of one of the same step,
// and removes other temporary folders: what an interrupted save or removal left. Nothing else is
// touched. OK where there is no such folder. For one process while no other saves there.
absl::Status CleanCheckpoints(const std::string& folder);

// Removes complete checkpoints called as CheckpointName says, except the last `keep_last` (0: all
// are kept) and those whose step is a multiple of `keep_every` (0: no others). Returns the paths
// that are gone. For one process. kInvalidArgument: a negative number.
absl::StatusOr<std::vector<std::string>> PruneCheckpoints(const std::string& folder,
                                                          int64_t keep_last, int64_t keep_every);

}  // namespace zero
