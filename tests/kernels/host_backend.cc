// Kernels on the host: the variants are the SIMD targets of this CPU.
#include <atomic>
#include <cstring>

#include "device/host_device.h"
#include "kernels/simd_targets.h"
#include "tests/catch.h"
#include "tests/kernels/kernel_backend.h"

namespace zero {
namespace {

class HostBackend : public KernelBackend {
 public:
  explicit HostBackend(ThreadPool* pool) : device_(Options(pool)) {}
  Device& device() override { return device_; }
  int64_t kernels() const override { return kernels_; }

 private:
  HostDevice::Options Options(ThreadPool* pool) {
    HostDevice::Options options;
    options.pool = pool;
    options.hook = [this](const std::string&, const char* operation) {
      // Synchronize records an event.
      if (std::strcmp(operation, "record") != 0 && std::strcmp(operation, "copy") != 0) ++kernels_;
      return absl::OkStatus();
    };
    return options;
  }

  std::atomic<int64_t> kernels_{0};
  HostDevice device_;
};

}  // namespace

std::unique_ptr<KernelBackend> NewKernelBackend(ThreadPool* pool) {
  return std::make_unique<HostBackend>(pool);
}

std::vector<std::string> KernelVariants() {
  std::vector<std::string> variants = {"best"};
  for (const char* name : {"avx512", "avx2", "sse4", "ssse3", "scalar"}) {
    REQUIRE_OK(LimitSimdTargets(name));
    if (SimdTargetName() == name) variants.push_back(name);
  }
  REQUIRE_OK(LimitSimdTargets("best"));
  REQUIRE(variants.size() >= 2);
  return variants;
}

void SelectKernelVariant(const std::string& name) { REQUIRE_OK(LimitSimdTargets(name)); }

}  // namespace zero
