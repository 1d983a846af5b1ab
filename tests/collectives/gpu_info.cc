// What of this machine the GPU programs can use: a line for the first GPU and one for NCCL. Without
// a GPU, one line that says why, and exit status 1.
#include <cstdio>
#include <string>

#include "absl/strings/str_format.h"
#include "collectives/nccl_api.h"
#include "device/cuda_device.h"

int main() {
  const auto device = zero::CudaDevice::Create();
  if (!device.ok()) {
    std::fprintf(stderr, "no GPU: %s\n", std::string(device.status().message()).c_str());
    return 1;
  }
  const zero::CudaProperties& gpu = (*device)->properties();
  const auto free_bytes = (*device)->FreeBytes();
  constexpr double kGib = 1 << 30;
  std::printf("%s\n",
              absl::StrFormat("GPU: %s, compute capability %d.%d, %d multiprocessors, %.1f GiB, "
                              "%.1f free",
                              gpu.name, gpu.major, gpu.minor, gpu.multiprocessors,
                              static_cast<double>(gpu.total_bytes) / kGib,
                              static_cast<double>(free_bytes.ok() ? *free_bytes : 0) / kGib)
                  .c_str());
  const absl::StatusOr<const zero::NcclApi*> nccl = zero::LoadNccl();
  if (nccl.ok()) {
    std::printf("NCCL: version %d\n", (*nccl)->version);
  } else {
    std::printf("NCCL: none: %s\n", std::string(nccl.status().message()).c_str());
  }
  return 0;
}
