// Kernels on CUDA, emulated: the variants are orders of the threads.
#include "device/cuda_device.h"
#include "tests/catch.h"
#include "tests/emulation/grid.h"
#include "tests/kernels/kernel_backend.h"
#include "tests/standin/cudart.h"

namespace zero {
namespace {

class StandinBackend : public KernelBackend {
 public:
  StandinBackend() {
    if (live_++ == 0) standin::Reset();
    absl::StatusOr<std::unique_ptr<CudaDevice>> device = CudaDevice::Create();
    REQUIRE_OK(device.status());
    device_ = *std::move(device);
  }
  ~StandinBackend() override {
    device_.reset();
    if (--live_ > 0) return;
    CHECK(standin::LiveObjects() == standin::Live());
    CHECK(standin::Violations().empty());
  }
  Device& device() override { return *device_; }
  int64_t kernels() const override { return standin::Calls("cudaLaunchKernel"); }

 private:
  static int live_;
  std::unique_ptr<CudaDevice> device_;
};
int StandinBackend::live_ = 0;

}  // namespace

std::unique_ptr<KernelBackend> NewKernelBackend(ThreadPool*) {
  return std::make_unique<StandinBackend>();
}

std::vector<std::string> KernelVariants() { return {"forward", "reverse", "seeded"}; }

void SelectKernelVariant(const std::string& name) {
  emulation::SetOrder(name == "reverse"  ? emulation::Order::kReverse
                      : name == "seeded" ? emulation::Order::kSeeded
                                         : emulation::Order::kForward,
                      /*seed=*/7);
}

}  // namespace zero
