// Grids as large as the GPU has use for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "device/cuda_device.h"
#include "device/cuda_stream.h"
#include "kernels/launch.cuh"

namespace zero::cuda {

// Blocks of `threads` threads for `tiles` pieces of work: one for each, but no more than the GPU
// runs at once a few times over. Each block walks over its share.
inline unsigned GridBlocks(const Stream& stream, int64_t tiles, int threads) {
  constexpr int64_t kThreadsOfProcessor = 2048;
  constexpr int64_t kTimesOver = 4;
  // Only streams of such devices get here.
  const auto& device = static_cast<const CudaDevice&>(stream.device());
  const int64_t most =
      device.properties().multiprocessors * (kThreadsOfProcessor / threads) * kTimesOver;
  return static_cast<unsigned>(std::clamp<int64_t>(tiles, 1, most));
}

template <class... Parameters, class... Arguments>
absl::Status LaunchGrid(const char* name, const Stream& stream, void (*kernel)(Parameters...),
                        int64_t tiles, int threads, const Arguments&... arguments) {
  return LaunchKernel(name, kernel, dim3(GridBlocks(stream, tiles, threads)),
                      dim3(static_cast<unsigned>(threads)), 0, NativeStream(stream), arguments...);
}

}  // namespace zero::cuda
