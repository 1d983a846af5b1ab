#include "device/cuda_device.h"
#include "device/status.h"
#include "tests/collectives/gpu_under_test.h"
#include "tests/standin/cudart.h"

namespace zero::test {

absl::StatusOr<std::unique_ptr<Device>> NewGpuUnderTest(int id) {
  CudaDevice::Options options;
  options.id = id;
  ZERO_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device, CudaDevice::Create(options));
  return device;
}

void ResetGpusUnderTest(int count) {
  standin::CudartOptions options;
  options.devices = count;
  standin::Reset(options);
}

std::vector<std::string> ViolationsOnGpus() {
  std::vector<std::string> violations = standin::Violations();
  if (!(standin::LiveObjects() == standin::Live())) violations.push_back("something was leaked");
  return violations;
}

}  // namespace zero::test
