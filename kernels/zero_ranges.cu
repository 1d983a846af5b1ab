#include <algorithm>

#include "device/status.h"
#include "kernels/cuda_kernels.h"
#include "kernels/grid.cuh"
#include "kernels/launch.cuh"

namespace zero::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAccess = 16;  // bytes

// Passed by value: no memory of the host has to live until the stream gets there.
struct Ranges {
  static constexpr int kMost = 128;
  ByteRange ranges[kMost];
};

// Block (x, y) zeroes its share of range y, from byte `first` on.
__global__ void __launch_bounds__(kThreads)
    ZeroRangesKernel(const Ranges ranges, const int64_t first) {
  char* const begin = static_cast<char*>(ranges.ranges[blockIdx.y].begin);
  const int64_t bytes = ranges.ranges[blockIdx.y].bytes;
  const int64_t over = static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin + first) % kAccess);
  const int64_t aligned = first + (over == 0 ? 0 : kAccess - over);
  const int64_t wide = aligned < bytes ? (bytes - aligned) / kAccess : 0;
  const int64_t thread = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  for (int64_t i = thread; i < wide; i += gridDim.x * int64_t{kThreads}) {
    *reinterpret_cast<uint4*>(begin + aligned + i * kAccess) = make_uint4(0, 0, 0, 0);
  }
  if (blockIdx.x == 0) {
    const int64_t head = first + threadIdx.x;
    if (head < min(aligned, bytes)) begin[head] = 0;
    const int64_t tail = aligned + wide * kAccess + threadIdx.x;
    if (tail < bytes) begin[tail] = 0;
  }
}

}  // namespace

absl::Status ZeroRanges(const Stream& stream, const std::vector<ByteRange>& ranges, int64_t first) {
  const int64_t count = static_cast<int64_t>(ranges.size());
  for (int64_t done = 0; done < count; done += Ranges::kMost) {
    Ranges chunk = {};
    const int64_t here = std::min<int64_t>(Ranges::kMost, count - done);
    std::copy_n(ranges.begin() + done, here, chunk.ranges);
    int64_t longest = 0;
    for (int64_t i = 0; i < here; ++i) longest = std::max(longest, chunk.ranges[i].bytes - first);
    const int64_t tiles = longest / (kThreads * kAccess) + 1;
    ZERO_RETURN_IF_ERROR(
        LaunchKernel("zero_ranges", &ZeroRangesKernel,
                     dim3(GridBlocks(stream, tiles, kThreads), static_cast<unsigned>(here)),
                     dim3(kThreads), 0, NativeStream(stream), chunk, first));
  }
  return absl::OkStatus();
}

}  // namespace zero::cuda
