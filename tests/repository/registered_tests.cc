#include "tests/repository/registered_tests.h"

#include <algorithm>
#include <cstdio>

namespace zero::repository {

std::vector<std::string> RegisteredTests() {
  std::vector<std::string> names;
  FILE* pipe = popen("cd '" ZERO_BINARY_DIR "' && '" ZERO_CTEST "' -N", "r");
  if (pipe == nullptr) return names;
  std::string output;
  char chunk[4096];
  while (std::fgets(chunk, sizeof(chunk), pipe) != nullptr) output += chunk;
  if (pclose(pipe) != 0) return names;

  // "  Test  #7: name"
  for (size_t begin = 0; begin < output.size();) {
    const size_t end = std::min(output.find('\n', begin), output.size());
    const std::string line = output.substr(begin, end - begin);
    begin = end + 1;
    const size_t colon = line.find(": ");
    if (line.compare(0, 7, "  Test ") == 0 && colon != std::string::npos) {
      names.push_back(line.substr(colon + 2));
    }
  }
  return names;
}

}  // namespace zero::repository
