// One Catch2 header for both major versions, and what this project's tests share.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
inline auto ContainsSubstring(const std::string& text) { return Catch::Matchers::Contains(text); }
#endif

#include "absl/status/status.h"

// The status must be OK; its text is printed if not.
#define CHECK_OK(expression)                         \
  do {                                               \
    const absl::Status check_ok_status = (expression); \
    INFO(check_ok_status.ToString());                \
    CHECK(check_ok_status.ok());                     \
  } while (false)
#define REQUIRE_OK(expression)                       \
  do {                                               \
    const absl::Status check_ok_status = (expression); \
    INFO(check_ok_status.ToString());                \
    REQUIRE(check_ok_status.ok());                   \
  } while (false)
