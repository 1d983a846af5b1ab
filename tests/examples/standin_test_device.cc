// The model's operations on CUDA, emulated.
#include "device/cuda_device.h"
#include "tests/examples/test_device.h"
#include "tests/standin/cublaslt.h"
#include "tests/standin/cudart.h"

namespace zero::llama {

std::unique_ptr<Device> NewTestDevice(ThreadPool*) {
  absl::StatusOr<std::unique_ptr<CudaDevice>> device = CudaDevice::Create();
  REQUIRE_OK(device.status());
  return *std::move(device);
}

std::vector<std::string> ProductVariants() { return {"cuBLASLt", "plain kernels"}; }

void SelectProductVariant(const std::string& name) {
  standin::SetCublasLtLoadable(name == "cuBLASLt");
}

TestSession::TestSession() { standin::Reset(); }
TestSession::~TestSession() {
  CHECK(standin::LiveObjects() == standin::Live());
  CHECK(standin::CublasLtLiveObjects() == 0);
  CHECK(standin::CublasLtComplaint() == "");
  std::string violations;
  for (const std::string& violation : standin::TakeViolations()) violations += violation + "\n";
  CHECK(violations == "");
}

}  // namespace zero::llama
