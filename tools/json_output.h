// What scripts get that asked for JSON, also where a program fails.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace zero::tools {

// The object, as it is printed. A path in it need not be UTF-8.
std::string JsonText(const nlohmann::ordered_json& object);

// Whether arguments, which need not be understood, have --json.
bool AsksForJson(const std::vector<std::string>& arguments);

// One object on stdout, {"error": what was wrong}. The line on stderr and the exit status are as
// without --json.
void PrintJsonError(const absl::Status& error);

}  // namespace zero::tools
