// What a program answers to what it does not take.
#pragma once

#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/programs/subprocess.h"

namespace zero::programs {

// It ended with `status` and one line that has all `words`.
inline void CheckFailed(const Outcome& outcome, int status, const std::vector<std::string>& words) {
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == status);
  CHECK(LinesOf(outcome.err) == 1);
  for (const std::string& word : words) CHECK_THAT(outcome.err, ContainsSubstring(word));
}

// The same, before it began: there is nothing on stdout.
inline void CheckRefused(const Outcome& outcome, int status,
                         const std::vector<std::string>& words) {
  CheckFailed(outcome, status, words);
  CHECK(outcome.out.empty());
}

}  // namespace zero::programs
