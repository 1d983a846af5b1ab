// The model's operations on the host.
#include "device/host_device.h"
#include "examples/llama/product.h"
#include "tests/examples/test_device.h"

namespace zero::llama {

std::unique_ptr<Device> NewTestDevice(ThreadPool* pool) {
  HostDevice::Options options;
  options.pool = pool;
  return std::make_unique<HostDevice>(options);
}

std::vector<std::string> ProductVariants() { return {"whichever fits", "Eigen"}; }

void SelectProductVariant(const std::string& name) {
  SetProductLibrary(name == "Eigen" ? ProductLibrary::kEigen : ProductLibrary::kAuto);
}

TestSession::TestSession() = default;
TestSession::~TestSession() = default;

}  // namespace zero::llama
