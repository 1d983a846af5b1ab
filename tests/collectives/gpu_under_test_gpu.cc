// The GPUs of this machine; one stands for all where there are fewer than a test asks for.
#include "device/cuda_device.h"
#include "device/status.h"
#include "tests/collectives/gpu_under_test.h"

namespace zero::test {

absl::StatusOr<std::unique_ptr<Device>> NewGpuUnderTest(int id) {
  ZERO_ASSIGN_OR_RETURN(const int count, CudaDeviceCount());
  CudaDevice::Options options;
  options.id = id % count;
  ZERO_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device, CudaDevice::Create(options));
  return device;
}

void ResetGpusUnderTest(int) {}
std::vector<std::string> ViolationsOnGpus() { return {}; }

}  // namespace zero::test
