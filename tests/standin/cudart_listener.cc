// Fails every test case that ends with a violation of CUDA's rules, whether it asked or not.
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <cstdio>
#include <cstdlib>

#include "tests/catch.h"
#include "tests/standin/cudart.h"

namespace {

#if __has_include(<catch2/catch_all.hpp>)
using Base = Catch::EventListenerBase;
#else
using Base = Catch::TestEventListenerBase;
#endif

class ViolationListener : public Base {
 public:
  using Base::Base;
  // Assertions are over by now: the program ends instead.
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    const auto violations = zero::standin::TakeViolations();
    if (violations.empty()) return;
    std::fprintf(stderr, "\nin '%s', against the rules of CUDA:\n", stats.testInfo.name.c_str());
    for (const std::string& violation : violations)
      std::fprintf(stderr, "  %s\n", violation.c_str());
    std::_Exit(1);
  }
};

}  // namespace

CATCH_REGISTER_LISTENER(ViolationListener)
