// What scripts get that asked for JSON where a program fails.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace zero::tools {

// Whether arguments, which need not be understood, have --json.
bool AsksForJson(const std::vector<std::string>& arguments);

// One object on stdout, {"error": what was wrong}. The line on stderr and the exit status are as
// without --json.
void PrintJsonError(const absl::Status& error);

}  // namespace zero::tools
