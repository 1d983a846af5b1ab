// The checkpoints of a run: one folder that holds a folder for each.
//
// A checkpoint is made under a temporary name, ".step-00000100.<16 hex digits>.tmp", gets its
// manifest last and then its name, "step-00000100". It is complete as soon as it has its manifest:
// what counts is the manifest and the sizes of the files, and the name only where it is that of
// another step, which is taken for neither. One that is to be removed is called
// ".step-00000100.removed" first, and does not count from then on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace zero {

// "step-00000100"
std::string CheckpointName(int64_t step);

// kDataLoss says both where `path`, of a checkpoint of `step`, has the name of another step, that
// is "step-" and another number: it was renamed, or its manifest is another's.
absl::Status CheckCheckpointName(const std::string& path, int64_t step);

// ".step-00000100.<16 hex digits>.tmp"
std::string TemporaryCheckpointName(int64_t step);

struct FoundCheckpoint {
  std::string path;
  int64_t step = 0;
  // Of LatestCheckpoint: later ones by their names that are not complete, and what they lack.
  std::vector<std::string> passed_over = {};
};

// The complete checkpoints in `folder`, oldest first; of one step, that with a temporary name last.
// Their checksums are not looked at. kNotFound: no such folder.
absl::StatusOr<std::vector<FoundCheckpoint>> FindCheckpoints(const std::string& folder);

// The last of them. kNotFound: there is none; says what was found instead, and what it lacks. One
// of a newer format, or that the system does not let be read, is an error and not passed over.
absl::StatusOr<FoundCheckpoint> LatestCheckpoint(const std::string& folder);

// Gives the complete checkpoint `folder`/`temporary` the name of its step, in the place of one that
// has it, which is removed then. Returns when that is on the disk. After an error one of them has
// the name, or both are found under temporary ones.
absl::Status PublishCheckpoint(const std::string& folder, const std::string& temporary,
                               int64_t step);

// Gives complete checkpoints with a temporary name their own, in the place of one of the same step,
// and removes temporary folders without a manifest: what an interrupted save or removal left.
// Nothing else is touched. OK where there is no such folder. For one process while no other saves
// there.
absl::Status CleanCheckpoints(const std::string& folder);

// Removes complete checkpoints called as CheckpointName says, of steps up to `newest`, except the
// last `keep_last` of these (0: all are kept) and those whose step is a multiple of `keep_every`
// (0: no others). Later steps, of a run that went further, are not touched and do not count.
// Returns the paths that are gone. For one process. kInvalidArgument: a negative number.
absl::StatusOr<std::vector<std::string>> PruneCheckpoints(const std::string& folder, int64_t newest,
                                                          int64_t keep_last, int64_t keep_every);

}  // namespace zero
