#include <limits>

#include "device/status.h"
#include "kernels/cuda_kernels.h"
#include "kernels/element_type.h"
#include "kernels/elements.cuh"
#include "kernels/norm_math.h"

namespace zero::cuda {
namespace {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// ---- One row of `scratch` for each chunk ----
//
// The lanes of the tree lie side by side in memory, so a thread that reads kWidth elements at once
// sums kWidth neighbouring lanes, and 32 / kWidth threads share a chunk.

constexpr int kChunkThreads = 128;

// Row r of a chunk: the elements 32 r .. 32 r + 31.
constexpr int kRowsInFlight = 4;

template <int kWidth>
__device__ __forceinline__ void AddRow(const float (&values)[kWidth], double (&lanes)[kWidth]) {
#pragma unroll
  for (int k = 0; k < kWidth; ++k) lanes[k] = lanes[k] + SquareMath(values[k]);
}

// This thread's lanes over the elements of a chunk, x[0 .. n - 1].
template <int kWidth, class T>
__device__ __forceinline__ void SumLanes(const T* x, int64_t n, int first_lane,
                                         double (&lanes)[kWidth]) {
  int64_t row = 0;
  for (; row + kRowsInFlight * kNormLanes <= n; row += kRowsInFlight * kNormLanes) {
    float values[kRowsInFlight][kWidth];
#pragma unroll
    for (int r = 0; r < kRowsInFlight; ++r) {
      LoadElements(x + row + r * kNormLanes + first_lane, values[r]);
    }
#pragma unroll
    for (int r = 0; r < kRowsInFlight; ++r) AddRow(values[r], lanes);
  }
  for (; row < n; row += kNormLanes) {
    for (int k = 0; k < kWidth; ++k) {
      const int64_t i = row + first_lane + k;
      if (i < n) lanes[k] = lanes[k] + SquareMath(x[i]);
    }
  }
}

// Adds the lanes in pairs, l += l + 16, then 8, 4, 2, 1: AddLanesMath. Every thread of the warp
// takes part; the first of each chunk's threads has the sum.
template <int kWidth>
__device__ __forceinline__ double AddLanes(double (&lanes)[kWidth]) {
#pragma unroll
  for (int half = kNormLanes / 2; half >= kWidth; half /= 2) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      lanes[k] = lanes[k] + __shfl_down_sync(kAllLanes, lanes[k], half / kWidth, kWarp / kWidth);
    }
  }
#pragma unroll
  for (int half = kWidth / 2; half > 0; half /= 2) {
#pragma unroll
    for (int k = 0; k < half; ++k) lanes[k] = lanes[k] + lanes[k + half];
  }
  return lanes[0];
}

template <int kWidth, class T>
__global__ void __launch_bounds__(kChunkThreads)
    NormChunksKernel(const T* in, int64_t n, int64_t first_chunk, NormPartial* chunks) {
  constexpr int kThreadsOfChunk = static_cast<int>(kNormLanes) / kWidth;
  constexpr int64_t kChunksOfBlock = kChunkThreads / kThreadsOfChunk;
  const int member = static_cast<int>(threadIdx.x) % kThreadsOfChunk;
  const int64_t count = (n + kNormChunk - 1) / kNormChunk;
  // The threads of a warp go round together, whether or not there is a chunk for each.
  for (int64_t base = first_chunk + blockIdx.x * kChunksOfBlock; base < count;
       base += gridDim.x * kChunksOfBlock) {
    const int64_t chunk = base + threadIdx.x / kThreadsOfChunk;
    const int64_t begin = chunk * kNormChunk;
    const int64_t elements = chunk < count ? min(kNormChunk, n - begin) : 0;
    double lanes[kWidth] = {};
    SumLanes(in + (elements > 0 ? begin : 0), elements, member * kWidth, lanes);
    const double sum = __shfl_sync(kAllLanes, AddLanes(lanes), 0, kThreadsOfChunk);

    // A finite sum has finite terms only, see norm.cc: the elements seldom need a second look.
    long long non_finite = 0;
    long long first_non_finite = INT64_MAX;
    if (!(sum <= std::numeric_limits<double>::max())) {
      for (int64_t i = member; i < elements; i += kThreadsOfChunk) {
        if (!IsNonFinite(ToFloat(in[begin + i]))) continue;
        if (non_finite == 0) first_non_finite = begin + i;
        ++non_finite;
      }
    }
    __syncwarp();
#pragma unroll
    for (int half = kThreadsOfChunk / 2; half > 0; half /= 2) {
      non_finite += __shfl_down_sync(kAllLanes, non_finite, half, kThreadsOfChunk);
      first_non_finite = min(first_non_finite,
                             __shfl_down_sync(kAllLanes, first_non_finite, half, kThreadsOfChunk));
    }
    if (member == 0 && elements > 0) {
      NormPartial partial;
      partial.sum_of_squares = sum;
      partial.non_finite = non_finite;
      partial.first_non_finite = first_non_finite;
      chunks[chunk] = partial;
    }
  }
}

// ---- The chunks in order: AddChunksMath ----
//
// Only the sum depends on the order, and one addition waits for the one before it: a thread adds
// from shared memory while the others fetch what comes next.

constexpr int kAddThreads = 128;
constexpr int kTileChunks = 1024;

__global__ void __launch_bounds__(kAddThreads)
    AddChunksKernel(const NormPartial* chunks, int64_t count, NormPartial* out) {
  ZERO_SHARED(double, sums, 2 * kTileChunks);
  ZERO_SHARED(unsigned long long, non_finite_total, 1);
  ZERO_SHARED(unsigned long long, first_total, 1);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    non_finite_total[0] = 0;
    first_total[0] = INT64_MAX;
  }
  long long non_finite = 0;
  long long first = INT64_MAX;
  double total = 0;
  const auto fetch = [&](int64_t tile, double* buffer) {
#pragma unroll
    for (int i = thread; i < kTileChunks; i += kAddThreads) {
      if (tile + i >= count) continue;
      const NormPartial chunk = chunks[tile + i];
      buffer[i] = chunk.sum_of_squares;
      non_finite += chunk.non_finite;
      first = min(first, static_cast<long long>(chunk.first_non_finite));
    }
  };

  fetch(0, sums);
  __syncthreads();
  for (int64_t tile = 0, turn = 0; tile < count; tile += kTileChunks, turn ^= 1) {
    const double* const ready = sums + turn * kTileChunks;
    fetch(tile + kTileChunks, sums + (turn ^ 1) * kTileChunks);
    if (thread == 0) {
      const int here = static_cast<int>(min(int64_t{kTileChunks}, count - tile));
#pragma unroll 8
      for (int i = 0; i < here; ++i) total = total + ready[i];
    }
    __syncthreads();
  }
  if (non_finite != 0) {
    atomicAdd(&non_finite_total[0], static_cast<unsigned long long>(non_finite));
    atomicMin(&first_total[0], static_cast<unsigned long long>(first));
  }
  __syncthreads();
  if (thread == 0) {
    NormPartial result;
    result.sum_of_squares = total;
    result.non_finite = static_cast<int64_t>(non_finite_total[0]);
    result.first_non_finite = static_cast<int64_t>(first_total[0]);
    *out = result;
  }
}

template <int kWidth, class T>
absl::Status LaunchChunks(const Stream& stream, const T* in, int64_t n, int64_t first_chunk,
                          NormPartial* scratch) {
  constexpr int64_t kChunksOfBlock = kChunkThreads * kWidth / kNormLanes;
  const int64_t chunks = NormChunks(n) - first_chunk;
  return LaunchGrid("norm_chunks", stream, &NormChunksKernel<kWidth, T>,
                    (chunks + kChunksOfBlock - 1) / kChunksOfBlock, kChunkThreads, in, n,
                    first_chunk, scratch);
}

}  // namespace

absl::Status Norm(const Stream& stream, const void* in, DType type, int64_t n, NormPartial* scratch,
                  NormPartial* out, int64_t first) {
  ZERO_RETURN_IF_ERROR(WithElementType(type, [&](auto element) {
    using T = decltype(element);
    const T* const x = static_cast<const T*>(in);
    Alignment alignment(first);
    alignment.Include(x);
    // Chunks begin at the first element: where that is not at a multiple of 16 bytes, none is.
    return alignment.head() == 0 ? LaunchChunks<kPack<T>>(stream, x, n, first / kNormChunk, scratch)
                                 : LaunchChunks<1>(stream, x, n, first / kNormChunk, scratch);
  }));
  return LaunchKernel("norm_add_chunks", &AddChunksKernel, dim3(1), dim3(kAddThreads), 0,
                      NativeStream(stream), scratch, NormChunks(n), out);
}

}  // namespace zero::cuda
