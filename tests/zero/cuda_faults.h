// Failures of CUDA calls, for the loops over all failures.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tests/zero/backend.h"
#include "tests/zero/fault_loop.h"

namespace zero::test {

// Ranks on `groups`; the last that comes to its second step calls `plant`.
FaultBackend OnCuda(const Backend& groups, const std::function<void(int64_t n)>& plant,
                    const std::function<bool()>& happened, const std::function<void()>& forget,
                    const std::string& what);

// The n-th call of `function` fails.
FaultBackend FailingCall(const Backend& groups, const std::string& function);

}  // namespace zero::test
