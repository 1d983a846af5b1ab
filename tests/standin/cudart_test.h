// What tests on the cudart stand-in share.
#pragma once

#include <string>
#include <utility>

#include "tests/catch.h"
#include "tests/standin/cudart.h"

namespace zero::standin {

// A fresh stand-in for one test case, which fails if something was left behind, if a violation was
// not taken, or if a planned failure did not happen. Made before every device.
class CudartScope {
 public:
  explicit CudartScope(CudartOptions options = {}) { Reset(std::move(options)); }
  ~CudartScope() {
    const Live live = LiveObjects();
    CAPTURE(live.allocations, live.host_allocations, live.streams, live.events);
    CHECK(live == Live());
    std::string violations;
    for (const std::string& violation : TakeViolations()) violations += violation + "\n";
    CHECK(violations == "");
    CHECK(FaultsAreUsedUp());
    Reset();
  }
  CudartScope(const CudartScope&) = delete;
  CudartScope& operator=(const CudartScope&) = delete;
};

}  // namespace zero::standin
