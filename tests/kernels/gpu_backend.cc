// Kernels on the first GPU of this machine.
#include <cuda_runtime_api.h>

#include <atomic>

#include "device/cuda_device.h"
#include "tests/catch.h"
#include "tests/kernels/kernel_backend.h"

namespace {
std::atomic<int64_t> launches{0};
}  // namespace

// The linker gives every launch to the first of these, and calls the second cudaLaunchKernelExC.
extern "C" {
cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                       void** arguments);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                       void** arguments);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                       void** arguments) {
  ++launches;
  return __real_cudaLaunchKernelExC(config, kernel, arguments);
}
}

namespace zero {
namespace {

class GpuBackend : public KernelBackend {
 public:
  GpuBackend() : before_(launches) {
    absl::StatusOr<std::unique_ptr<CudaDevice>> device = CudaDevice::Create();
    REQUIRE_OK(device.status());
    device_ = *std::move(device);
  }
  Device& device() override { return *device_; }
  int64_t kernels() const override { return launches - before_; }

 private:
  const int64_t before_;
  std::unique_ptr<CudaDevice> device_;
};

}  // namespace

std::unique_ptr<KernelBackend> NewKernelBackend(ThreadPool*) {
  return std::make_unique<GpuBackend>();
}

std::vector<std::string> KernelVariants() { return {"GPU"}; }
void SelectKernelVariant(const std::string&) {}

}  // namespace zero
