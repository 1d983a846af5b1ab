#include "tests/repository/registered_tests.h"

#include "tests/catch.h"

namespace zero::repository {
namespace {

TEST_CASE("Registered tests: there are at least as many as there once were") {
  const size_t floor = ZERO_MINIMUM_TESTS;  // set beside this file, in CMakeLists.txt
  CHECK(RegisteredTests().size() >= floor);
}

TEST_CASE("Registered tests: every test program was built and listed its cases") {
  bool lists_this_case = false;
  for (const std::string& name : RegisteredTests()) {
    CAPTURE(name);
    CHECK(name.find("_NOT_BUILT") == std::string::npos);
    lists_this_case |= name.find("was built and listed its cases") != std::string::npos;
  }
  CHECK(lists_this_case);
}

}  // namespace
}  // namespace zero::repository
