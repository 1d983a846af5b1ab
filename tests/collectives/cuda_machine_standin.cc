#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/collectives/cuda_machine.h"
#include "tests/standin/cudart.h"
#include "tests/standin/nccl_standin.h"

namespace zero::test {

namespace {

standin::CudartOptions& WorldOptions() {
  static auto* const options = new standin::CudartOptions;
  return *options;
}

}  // namespace

void SetDelays(int delay_us, uint64_t seed) {
  WorldOptions().delay_us = delay_us;
  WorldOptions().seed = seed;
}

void PrepareCudaMachine(int gpus) {
  standin::CudartOptions options = WorldOptions();
  options.devices = gpus;
  standin::Reset(options);
  standin::ResetNccl();
}

void CheckCudaMachine() {
  CHECK(standin::NcclViolations() == std::vector<std::string>());
  CHECK(standin::Violations() == std::vector<std::string>());
  // Devices may still be there, and have a stream of their own.
  const standin::Live live = standin::LiveObjects();
  CHECK(live.allocations == 0);
  CHECK(live.host_allocations == 0);
}

}  // namespace zero::test
