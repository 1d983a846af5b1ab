#include "tools/json_output.h"

#include <algorithm>
#include <iostream>

namespace zero::tools {

std::string JsonText(const nlohmann::ordered_json& object) {
  return object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

bool AsksForJson(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == "--json" || argument == "--json=true";
  });
}

void PrintJsonError(const absl::Status& error) {
  std::cout << JsonText({{"error", std::string(error.message())}});
}

}  // namespace zero::tools
