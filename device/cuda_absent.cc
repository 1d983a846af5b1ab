// In place of the CUDA device where the CUDA toolkit was not found.
#include "device/cuda_device.h"

namespace zero {
namespace {

absl::Status Absent() {
  return absl::UnimplementedError(
      "this build has no CUDA; use a HostDevice, or build where the CUDA toolkit is found");
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(const Options&) { return Absent(); }

absl::StatusOr<int> CudaDeviceCount() { return Absent(); }

}  // namespace zero
