// How the programs end: their exit status and the line that says why.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace zero::support {

inline constexpr int kExitFailure = 1;  // a file, a device or a rank
inline constexpr int kExitUsage = 2;    // a flag

// Prints "<program>: <message>" as one line on stderr and returns `exit_status`.
int Fail(const std::string& program, const absl::Status& status, int exit_status);

// The same with a line for each line of the message.
int FailLines(const std::string& program, const absl::Status& status, int exit_status);

}  // namespace zero::support
