// The model's operations on the first GPU of this machine, with cuBLASLt where it is found.
#include "device/cuda_device.h"
#include "tests/examples/test_device.h"

namespace zero::llama {

std::unique_ptr<Device> NewTestDevice(ThreadPool*) {
  absl::StatusOr<std::unique_ptr<CudaDevice>> device = CudaDevice::Create();
  REQUIRE_OK(device.status());
  return *std::move(device);
}

std::vector<std::string> ProductVariants() { return {"what the machine has"}; }
void SelectProductVariant(const std::string&) {}

TestSession::TestSession() {}
TestSession::~TestSession() {}

}  // namespace zero::llama
