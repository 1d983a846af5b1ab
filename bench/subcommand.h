// A subcommand of zero-bench: one file each, listed in zero_bench.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace zero::bench {

// Parses its own flags and prints to stdout. kInvalidArgument: the user's mistake, exit status 2.
using Subcommand = absl::Status (*)(const std::vector<std::string>& arguments);

absl::Status RunCheckpoint(const std::vector<std::string>& arguments);
absl::Status RunCollectives(const std::vector<std::string>& arguments);
absl::Status RunKernels(const std::vector<std::string>& arguments);
absl::Status RunOffload(const std::vector<std::string>& arguments);
absl::Status RunOptimizer(const std::vector<std::string>& arguments);
absl::Status RunStages(const std::vector<std::string>& arguments);

}  // namespace zero::bench
