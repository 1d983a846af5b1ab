#include "tools/json_error.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

namespace zero::tools {

bool AsksForJson(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == "--json" || argument == "--json=true";
  });
}

void PrintJsonError(const absl::Status& error) {
  const nlohmann::ordered_json report = {{"error", std::string(error.message())}};
  // A path need not be UTF-8.
  std::cout << report.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
}

}  // namespace zero::tools
