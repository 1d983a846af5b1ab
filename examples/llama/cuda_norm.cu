// RMSNorm, forward and backward.
#include "device/status.h"
#include "examples/llama/cuda_kernel.cuh"
#include "examples/llama/cuda_ops.h"

namespace zero::llama::cuda {
namespace {

// A warp does a row.
constexpr int kRowsOfBlock = 4;
constexpr int kThreads = kRowsOfBlock * kWarp;

template <class T, bool kPacked>
__global__ void NormKernel(RmsNormArguments a, const T* x, const T* w, T* y, float* r) {
  constexpr int V = kVector<T>;
  const int64_t row = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp;
  const int64_t lane = threadIdx.x % kWarp;
  if (row >= a.rows) return;
  const T* in = x + row * a.width;
  T* out = y + row * a.width;
  float sum = 0;
  for (int64_t i = lane * V; i < a.width; i += kWarp * V) {
    float v[V];
    LoadPack<kPacked>(in + i, a.width - i, v);
    for (int j = 0; j < V; ++j) sum = fmaf(v[j], v[j], sum);
  }
  const float mean = WarpSum(sum) / static_cast<float>(a.width);
  const float scale = 1.0f / sqrtf(mean + a.epsilon);
  if (lane == 0) r[row] = scale;
  for (int64_t i = lane * V; i < a.width; i += kWarp * V) {
    float v[V], weight[V];
    LoadPack<kPacked>(in + i, a.width - i, v);
    LoadPack<kPacked>(w + i, a.width - i, weight);
    for (int j = 0; j < V; ++j) v[j] = v[j] * scale * weight[j];
    StorePack<kPacked>(v, a.width - i, out + i);
  }
}

// dx of one row per warp.
template <class T, bool kPacked>
__global__ void NormGradientKernel(RmsNormArguments a, RmsNormGradients g) {
  constexpr int V = kVector<T>;
  const int64_t row = int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp;
  const int64_t lane = threadIdx.x % kWarp;
  if (row >= a.rows) return;
  const int64_t at = row * a.width;
  const float* dy = g.dy + at;
  const T* w = static_cast<const T*>(g.w);
  const T* x = static_cast<const T*>(g.x) + at;
  const T* residual = g.residual != nullptr ? static_cast<const T*>(g.residual) + at : nullptr;
  T* dx = static_cast<T*>(g.dx) + at;
  float sum = 0;
  for (int64_t i = lane * V; i < a.width; i += kWarp * V) {
    float d[V], weight[V], v[V];
    LoadPack<kPacked>(dy + i, a.width - i, d);
    LoadPack<kPacked>(w + i, a.width - i, weight);
    LoadPack<kPacked>(x + i, a.width - i, v);
    for (int j = 0; j < V; ++j) sum = fmaf(d[j] * weight[j], v[j], sum);
  }
  const float r = g.r[row];
  const float back = r * r * r * (WarpSum(sum) / static_cast<float>(a.width));
  for (int64_t i = lane * V; i < a.width; i += kWarp * V) {
    float d[V], weight[V], v[V], kept[V] = {};
    LoadPack<kPacked>(dy + i, a.width - i, d);
    LoadPack<kPacked>(w + i, a.width - i, weight);
    LoadPack<kPacked>(x + i, a.width - i, v);
    if (residual != nullptr) LoadPack<kPacked>(residual + i, a.width - i, kept);
    for (int j = 0; j < V; ++j) d[j] = d[j] * weight[j] * r - v[j] * back + kept[j];
    StorePack<kPacked>(d, a.width - i, dx + i);
  }
}

// dw of kWarp columns per block. Warp s sums rows s, s + kStrands, ... in order, then the strands
// are added in pairs.
constexpr int kStrands = 16;

template <class T>
__global__ void NormWeightGradientKernel(RmsNormArguments a, RmsNormGradients g) {
  ZERO_SHARED(float, sums, kStrands* kWarp);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int strand = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = int64_t{blockIdx.x} * kWarp + lane;
  float sum = 0;
  if (column < a.width) {
    const T* x = static_cast<const T*>(g.x);
    for (int64_t row = strand; row < a.rows; row += kStrands) {
      const int64_t at = row * a.width + column;
      sum = fmaf(g.dy[at], ToFloat(x[at]) * g.r[row], sum);
    }
  }
  sums[strand * kWarp + lane] = sum;
  for (int half = kStrands / 2; half > 0; half /= 2) {
    __syncthreads();
    if (strand < half) sums[strand * kWarp + lane] += sums[(strand + half) * kWarp + lane];
  }
  if (strand != 0 || column >= a.width) return;
  T* dw = static_cast<T*>(g.dw) + column;
  RoundTo(g.accumulate ? ToFloat(*dw) + sums[lane] : sums[lane], dw);
}

}  // namespace

absl::Status RmsNormForward(const Stream& stream, const RmsNormArguments& arguments, const void* x,
                            const void* w, void* y, float* r) {
  return WithElement(arguments.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const auto* in = static_cast<const T*>(x);
    const auto* weight = static_cast<const T*>(w);
    auto* out = static_cast<T*>(y);
    constexpr int V = kVector<T>;
    const bool packed = arguments.width % V == 0 && PackAligned(in, V) && PackAligned(weight, V) &&
                        PackAligned(out, V);
    return Launch(stream, "rmsnorm", packed ? NormKernel<T, true> : NormKernel<T, false>,
                  CeilDiv(arguments.rows, kRowsOfBlock), kThreads, arguments, in, weight, out, r);
  });
}

absl::Status RmsNormBackward(const Stream& stream, const RmsNormArguments& arguments,
                             const RmsNormGradients& gradients) {
  return WithElement(arguments.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    if (gradients.dw != nullptr) {
      ZERO_RETURN_IF_ERROR(Launch(stream, "rmsnorm weights backward", NormWeightGradientKernel<T>,
                                  CeilDiv(arguments.width, kWarp), kStrands * kWarp, arguments,
                                  gradients));
    }
    constexpr int V = kVector<T>;
    const auto aligned = [](const void* data) {
      return PackAligned(static_cast<const T*>(data), V);
    };
    const bool packed = arguments.width % V == 0 && PackAligned(gradients.dy, V) &&
                        aligned(gradients.w) && aligned(gradients.x) &&
                        aligned(gradients.residual) && aligned(gradients.dx);
    return Launch(stream, "rmsnorm backward",
                  packed ? NormGradientKernel<T, true> : NormGradientKernel<T, false>,
                  CeilDiv(arguments.rows, kRowsOfBlock), kThreads, arguments, gradients);
  });
}

}  // namespace zero::llama::cuda
