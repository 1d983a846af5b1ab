// Runs a check once for each SIMD target that is compiled in and that this CPU has.
#pragma once

#include "hwy/targets.h"
#include "tests/catch.h"

namespace zero::llama {

template <class F>
void OnEachTarget(F check) {
  int targets = 0;
  for (auto left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    const auto target = left & (~left + 1);
    hwy::SetSupportedTargetsForTest(target);
    CAPTURE(hwy::TargetName(target));
    check();
    ++targets;
  }
  hwy::SetSupportedTargetsForTest(0);
  CHECK(targets > 1);
}

}  // namespace zero::llama
