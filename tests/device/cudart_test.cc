// The CUDA device on the runtime itself, whatever this machine has.
#include <string>

#include "device/cuda_device.h"
#include "tests/catch.h"

namespace zero {
namespace {

TEST_CASE("CUDA runtime: there is a GPU, or a message that says what is missing",
          "[device][cuda]") {
  const absl::StatusOr<int> count = CudaDeviceCount();
  if (count.ok()) {
    CHECK(*count > 0);
    CHECK_OK(CudaDevice::Create().status());
    return;
  }
  CHECK(absl::IsUnavailable(count.status()));
  const std::string message(count.status().message());
  CHECK_THAT(message, ContainsSubstring("driver"));
  CHECK_THAT(message, ContainsSubstring("cudaGetDeviceCount"));
  CHECK_THAT(message, ContainsSubstring("HostDevice"));
  CHECK(CudaDevice::Create().status() == count.status());
}

}  // namespace
}  // namespace zero
