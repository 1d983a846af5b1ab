// SwiGLU, residual sums and rotary embedding.
#include <cmath>

#include "examples/llama/cuda_kernel.cuh"
#include "examples/llama/cuda_ops.h"

namespace zero::llama::cuda {
namespace {

constexpr int kThreads = 256;

__device__ inline float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Each thread does one pack.
template <class T, bool kPacked>
__global__ void SwiGluKernel(int64_t n, const T* gate, const T* up, T* out) {
  constexpr int V = kVector<T>;
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * V;
  if (first >= n) return;
  float g[V], u[V];
  LoadPack<kPacked>(gate + first, n - first, g);
  LoadPack<kPacked>(up + first, n - first, u);
  for (int i = 0; i < V; ++i) u[i] = g[i] * Sigmoid(g[i]) * u[i];
  StorePack<kPacked>(u, n - first, out + first);
}

// d_up may be d_out.
template <class T, bool kPacked>
__global__ void SwiGluGradientKernel(int64_t n, const T* gate, const T* up, const T* d_out,
                                     T* d_gate, T* d_up) {
  constexpr int V = kVector<T>;
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * V;
  if (first >= n) return;
  float g[V], u[V], d[V];
  LoadPack<kPacked>(gate + first, n - first, g);
  LoadPack<kPacked>(up + first, n - first, u);
  LoadPack<kPacked>(d_out + first, n - first, d);
  for (int i = 0; i < V; ++i) {
    const float s = Sigmoid(g[i]);
    u[i] = d[i] * u[i] * (s * fmaf(g[i], 1.0f - s, 1.0f));
    d[i] = d[i] * (g[i] * s);
  }
  StorePack<kPacked>(u, n - first, d_gate + first);
  StorePack<kPacked>(d, n - first, d_up + first);
}

template <class T, bool kPacked>
__global__ void SumKernel(int64_t n, const T* a, const T* b, T* sum) {
  constexpr int V = kVector<T>;
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * V;
  if (first >= n) return;
  float left[V], right[V];
  LoadPack<kPacked>(a + first, n - first, left);
  LoadPack<kPacked>(b + first, n - first, right);
  for (int i = 0; i < V; ++i) left[i] += right[i];
  StorePack<kPacked>(left, n - first, sum + first);
}

// Each thread turns one pair.
template <class T>
__global__ void RotaryKernel(RotaryArguments a, T* x) {
  const int64_t half = a.head_dim / 2;
  const int64_t pair = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t head = pair / half, i = pair % half;  // head: of all tokens
  if (head >= a.tokens * a.heads) return;
  const int64_t angle = head / a.heads % a.sequence * half + i;
  T* at = x + head * a.head_dim + i;
  const float left = ToFloat(at[0]), right = ToFloat(at[half]);
  const float c = a.cos[angle], s = a.backward ? -a.sin[angle] : a.sin[angle];
  RoundTo(left * c - right * s, at);
  RoundTo(right * c + left * s, at + half);
}

template <class T>
int64_t PackBlocks(int64_t n) {
  return CeilDiv(n, int64_t{kThreads} * kVector<T>);
}

template <class T>
bool AllAligned(std::initializer_list<const void*> addresses) {
  for (const void* address : addresses) {
    if (!PackAligned(static_cast<const T*>(address), kVector<T>)) return false;
  }
  return true;
}

}  // namespace

absl::Status SwiGluForward(const Stream& stream, DType dtype, int64_t n, const void* gate,
                           const void* up, void* out) {
  return WithElement(dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const auto kernel =
        AllAligned<T>({gate, up, out}) ? SwiGluKernel<T, true> : SwiGluKernel<T, false>;
    return Launch(stream, "swiglu", kernel, PackBlocks<T>(n), kThreads, n,
                  static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<T*>(out));
  });
}

absl::Status SwiGluBackward(const Stream& stream, DType dtype, int64_t n, const void* gate,
                            const void* up, const void* d_out, void* d_gate, void* d_up) {
  return WithElement(dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const auto kernel = AllAligned<T>({gate, up, d_out, d_gate, d_up})
                            ? SwiGluGradientKernel<T, true>
                            : SwiGluGradientKernel<T, false>;
    return Launch(stream, "swiglu backward", kernel, PackBlocks<T>(n), kThreads, n,
                  static_cast<const T*>(gate), static_cast<const T*>(up),
                  static_cast<const T*>(d_out), static_cast<T*>(d_gate), static_cast<T*>(d_up));
  });
}

absl::Status AddResidual(const Stream& stream, DType dtype, int64_t n, const void* a, const void* b,
                         void* sum) {
  return WithElement(dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const auto kernel = AllAligned<T>({a, b, sum}) ? SumKernel<T, true> : SumKernel<T, false>;
    return Launch(stream, "add", kernel, PackBlocks<T>(n), kThreads, n, static_cast<const T*>(a),
                  static_cast<const T*>(b), static_cast<T*>(sum));
  });
}

absl::Status Rotary(const Stream& stream, const RotaryArguments& arguments, void* x) {
  const int64_t pairs = arguments.tokens * arguments.heads * (arguments.head_dim / 2);
  return WithElement(arguments.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    return Launch(stream, arguments.backward ? "rotary backward" : "rotary", RotaryKernel<T>,
                  CeilDiv(pairs, kThreads), kThreads, arguments, static_cast<T*>(x));
  });
}

}  // namespace zero::llama::cuda
