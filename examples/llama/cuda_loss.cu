// Softmax cross-entropy.
#include <cmath>

#include "examples/llama/cuda_kernel.cuh"
#include "examples/llama/cuda_ops.h"

namespace zero::llama::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int V = kVector<float>;

// The sum over a block, in fixed order, in every thread. `parts` [kThreads / kWarp] is shared.
__device__ inline float BlockSum(float x, float* parts) {
  x = WarpSum(x);
  __syncthreads();  // parts may hold the last result
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = x;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < kThreads / kWarp; ++i) sum += parts[i];
  return sum;
}
__device__ inline float BlockMax(float x, float* parts) {
  x = WarpMax(x);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = x;
  __syncthreads();
  float top = parts[0];
  for (int i = 1; i < kThreads / kWarp; ++i) top = fmaxf(top, parts[i]);
  return top;
}

// A block does a row.
template <bool kPacked>
__global__ void LossKernel(CrossEntropyArguments a, float* losses, float* lse) {
  ZERO_SHARED(float, parts, kThreads / kWarp);
  const int64_t row = blockIdx.x;
  const float* logits = a.logits + row * a.vocab;
  float top = -kInfinity;
  for (int64_t i = int64_t{threadIdx.x} * V; i < a.vocab; i += kThreads * V) {
    float x[V];
    LoadPack<kPacked>(logits + i, a.vocab - i, x);
    for (int j = 0; j < V; ++j) {
      if (i + j < a.vocab) top = fmaxf(top, x[j]);
    }
  }
  top = BlockMax(top, parts);
  float sum = 0;
  for (int64_t i = int64_t{threadIdx.x} * V; i < a.vocab; i += kThreads * V) {
    float x[V];
    LoadPack<kPacked>(logits + i, a.vocab - i, x);
    for (int j = 0; j < V; ++j) {
      if (i + j < a.vocab) sum += expf(x[j] - top);
    }
  }
  sum = BlockSum(sum, parts);
  if (threadIdx.x != 0) return;
  const auto result = static_cast<float>(static_cast<double>(top) + log(static_cast<double>(sum)));
  lse[row] = result;
  losses[row] = a.targets[row] < 0 ? 0.0f : result - logits[a.targets[row]];
}

// Block (row, segment); each thread does one pack, and reads nothing but what it writes: d_logits
// may be logits.
template <class T, bool kPacked>
__global__ void LossGradientKernel(CrossEntropyArguments a, int64_t segments, const float* lse,
                                   const float* scale, float factor, T* d_logits) {
  const int64_t row = blockIdx.x / segments, segment = blockIdx.x % segments;
  const int64_t first = (segment * kThreads + threadIdx.x) * V;
  if (first >= a.vocab) return;
  const float all = scale != nullptr ? *scale * factor : factor;
  const int32_t target = a.targets[row];
  float x[V] = {};
  if (target >= 0) {
    LoadPack<kPacked>(a.logits + row * a.vocab + first, a.vocab - first, x);
    for (int j = 0; j < V; ++j) {
      const float p = expf(x[j] - lse[row]);
      x[j] = (first + j == target ? p - 1.0f : p) * all;
    }
  }
  StorePack<kPacked>(x, a.vocab - first, d_logits + row * a.vocab + first);
}

// One block: the order of the additions is that of the rows.
__global__ void SumLossesKernel(int64_t rows, const float* losses, const int32_t* targets,
                                LossSum* sum) {
  ZERO_SHARED(float, loss, kThreads);
  ZERO_SHARED(int32_t, target, kThreads);
  const int thread = static_cast<int>(threadIdx.x);
  double total = 0;
  int64_t tokens = 0;
  for (int64_t first = 0; first < rows; first += kThreads) {
    const int64_t row = first + thread;
    target[thread] = row < rows ? targets[row] : -1;
    loss[thread] = row < rows ? losses[row] : 0.0f;
    __syncthreads();
    for (int i = 0; thread == 0 && i < kThreads; ++i) {
      if (target[i] < 0) continue;
      total += static_cast<double>(loss[i]);
      ++tokens;
    }
    __syncthreads();
  }
  if (thread != 0) return;
  sum->loss = total;
  sum->tokens = tokens;
}

}  // namespace

absl::Status CrossEntropyForward(const Stream& stream, const CrossEntropyArguments& arguments,
                                 float* losses, float* lse) {
  const bool packed = arguments.vocab % V == 0 && PackAligned(arguments.logits, V);
  return Launch(stream, "cross-entropy", packed ? LossKernel<true> : LossKernel<false>,
                arguments.rows, kThreads, arguments, losses, lse);
}

absl::Status CrossEntropyBackward(const Stream& stream, const CrossEntropyArguments& arguments,
                                  const float* lse, const float* scale, float factor, DType dtype,
                                  void* d_logits) {
  return WithElement(dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    auto* out = static_cast<T*>(d_logits);
    const bool packed =
        arguments.vocab % V == 0 && PackAligned(arguments.logits, V) && PackAligned(out, V);
    const int64_t segments = CeilDiv(arguments.vocab, int64_t{kThreads} * V);
    return Launch(stream, "cross-entropy backward",
                  packed ? LossGradientKernel<T, true> : LossGradientKernel<T, false>,
                  arguments.rows * segments, kThreads, arguments, segments, lse, scale, factor,
                  out);
  });
}

absl::Status SumLosses(const Stream& stream, int64_t rows, const float* losses,
                       const int32_t* targets, LossSum* sum) {
  return Launch(stream, "sum losses", SumLossesKernel, 1, kThreads, rows, losses, targets, sum);
}

}  // namespace zero::llama::cuda
