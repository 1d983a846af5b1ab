// How the programs end: their exit status and the line that says why.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace zero::support {

inline constexpr int kExitFailure = 1;  // a file, a device or a rank
inline constexpr int kExitUsage = 2;    // a flag

// kInvalidArgument where a launcher has started this process as one of several: a program that runs
// its ranks itself, or has none, would only run as often.
absl::Status CheckAlone();

// Prints "<program>: <message>" as one line on stderr and returns `exit_status`.
int Fail(const std::string& program, const absl::Status& status, int exit_status);

// The same with a line for each line of the message.
int FailLines(const std::string& program, const absl::Status& status, int exit_status);

}  // namespace zero::support
