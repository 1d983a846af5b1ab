// A disk on which one transfer fails: what the loops over all failures are made of.
#pragma once

#include "tests/zero/backend.h"
#include "tests/zero/fault_loop.h"

namespace zero::test {

// On `groups`, the n-th transfer of any rank's second step ends with errno `error`.
FaultBackend FailingDisk(const Backend& groups, int error);

// FaultConfig with states on a disk in `folder`, in pieces as small as can be, and weights of
// stage 3 where `parameters` says.
Config DiskFaultConfig(int stage, Place parameters, double ratio, const std::string& folder);

}  // namespace zero::test
