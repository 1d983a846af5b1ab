// The tests that CTest knows.
#pragma once

#include <string>
#include <vector>

namespace zero::repository {

// The names that "ctest -N" lists for this build. Empty if ctest fails.
std::vector<std::string> RegisteredTests();

}  // namespace zero::repository
