#include <string>

#include "device/cuda_device.h"
#include "tests/catch.h"

namespace zero {
namespace {

TEST_CASE("CUDA absent: a build without CUDA refuses and names the host device", "[device]") {
  for (const absl::Status& status : {CudaDeviceCount().status(), CudaDevice::Create().status()}) {
    CHECK(absl::IsUnimplemented(status));
    CHECK_THAT(std::string(status.message()), ContainsSubstring("HostDevice"));
  }
}

}  // namespace
}  // namespace zero
