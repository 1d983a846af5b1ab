// What the kernels of the model share: launches, element types, 16-byte accesses, sums in trees.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "device/cuda_stream.h"
#include "device/dtype.h"
#include "device/stream.h"
#include "kernels/element_type.h"
#include "kernels/launch.cuh"
#include "kernels/portable.h"

namespace zero::llama::cuda {

inline constexpr int kWarp = 32;  // threads
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

ZERO_HOST_DEVICE int64_t CeilDiv(int64_t n, int64_t d) { return (n + d - 1) / d; }

// Starts `blocks` blocks of `threads`; none: nothing.
template <class... Parameters, class... Arguments>
absl::Status Launch(const Stream& stream, const char* name, void (*kernel)(Parameters...),
                    int64_t blocks, dim3 threads, Arguments... arguments) {
  if (blocks == 0) return absl::OkStatus();
  if (blocks > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": needs ", blocks, " blocks of threads; a launch has at most 2^31 - 1"));
  }
  const CurrentCudaDevice current(CudaId(stream.device()));
  return LaunchKernel(name, kernel, dim3(static_cast<unsigned>(blocks)), threads, 0,
                      NativeStream(stream), static_cast<Parameters>(arguments)...);
}

// Calls f with a null pointer of the element type that `dtype` stands for.
template <class F>
absl::Status WithElement(DType dtype, F f) {
  return WithElementType(dtype,
                         [&](auto element) { return f(static_cast<decltype(element)*>(nullptr)); });
}

// V elements that are read or written in one access.
template <class T, int V>
struct alignas(V * sizeof(T)) Pack {
  T data[V];
};
// Elements of 16 bytes.
template <class T>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(T));

// Whether packs of V elements may be used at an address.
template <class T>
bool PackAligned(const T* address, int vector) {
  return reinterpret_cast<uintptr_t>(address) % (static_cast<unsigned>(vector) * sizeof(T)) == 0;
}

// to = from[0 ... count), 0 behind it. kPacked: in one access if all V are there.
template <bool kPacked, int V, class T>
__device__ inline void LoadPack(const T* from, int64_t count, float (&to)[V]) {
  if (kPacked && count >= V) {
    const Pack<T, V> pack = *reinterpret_cast<const Pack<T, V>*>(from);
    for (int i = 0; i < V; ++i) to[i] = ToFloat(pack.data[i]);
    return;
  }
  for (int i = 0; i < V; ++i) to[i] = i < count ? ToFloat(from[i]) : 0.0f;
}

// to[0 ... count) = from, rounded.
template <bool kPacked, int V, class T>
__device__ inline void StorePack(const float (&from)[V], int64_t count, T* to) {
  if (kPacked && count >= V) {
    Pack<T, V> pack;
    for (int i = 0; i < V; ++i) RoundTo(from[i], &pack.data[i]);
    *reinterpret_cast<Pack<T, V>*>(to) = pack;
    return;
  }
  for (int i = 0; i < V; ++i) {
    if (i < count) RoundTo(from[i], to + i);
  }
}

// The sum (maximum) over the lanes of a warp, in every lane. All lanes call.
__device__ inline float WarpSum(float x) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, distance);
  }
  return x;
}
__device__ inline float WarpMax(float x) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  }
  return x;
}

}  // namespace zero::llama::cuda
