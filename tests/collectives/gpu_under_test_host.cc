#include "tests/collectives/gpu_under_test.h"
#include "tests/collectives/host_as_gpu.h"

namespace zero::test {

absl::StatusOr<std::unique_ptr<Device>> NewGpuUnderTest(int) {
  return std::make_unique<HostAsGpu>();
}

void ResetGpusUnderTest(int) {}
std::vector<std::string> ViolationsOnGpus() { return {}; }

}  // namespace zero::test
