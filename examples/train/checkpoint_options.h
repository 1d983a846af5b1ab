// The flags about checkpoints.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "examples/support/flags.h"
#include "examples/train/options.h"

namespace zero::train {

inline constexpr const char* kLatest = "latest";  // of --resume

void AddCheckpointFlags(support::FlagTable& flags, Options& options);

// Flags that contradict each other, or a folder that cannot be written to: kInvalidArgument.
absl::Status CheckCheckpointOptions(const Options& options);

// Those that must be the same on every rank, lines of --flag=value.
std::string CheckpointLines(const Options& options);

}  // namespace zero::train
