// The file that --json names.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace zero::bench {

// Before anything is measured: kUnavailable, with the reason, if `path` cannot be written. Changes
// nothing. OK for "".
absl::Status CheckJsonFile(const std::string& path);

}  // namespace zero::bench
