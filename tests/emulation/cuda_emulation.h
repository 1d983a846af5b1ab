// Lets g++ compile .cu files: what nvcc supplies and the toolkit's headers leave out. launch.cuh
// includes it where the compiler is not nvcc.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/emulation/grid.h"
#include "tests/standin/cudart.h"

#undef __launch_bounds__
#define __launch_bounds__(...)

// Set for each thread before it runs.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = 32;

#define ZERO_SHARED(type, name, count)       \
  static constexpr char name##_key = 0;      \
  auto& name = *static_cast<type(*)[count]>( \
      ::zero::emulation::SharedMemory(&name##_key, sizeof(type[count])))

#define ZERO_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::zero::emulation::DynamicSharedMemory())

inline void __syncthreads() { ::zero::emulation::SyncThreads(); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) {
  ::zero::emulation::MeetWarp(::zero::emulation::WarpOperation::kSync, mask, 0, 0, warpSize);
}
inline void __threadfence() {}
inline void __threadfence_block() {}

namespace zero::emulation {

template <class T>
T ShuffleWarp(WarpOperation operation, unsigned mask, T value, int argument, int width) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) >= 4 && sizeof(T) <= 8,
                "CUDA shuffles integers and floats of 4 and 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = MeetWarp(operation, mask, bits, argument, width);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// The value before `change` was applied to *address, which other streams may change meanwhile.
template <class T, class Change>
T AtomicChange(T* address, const Change& change) {
  T old;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  for (;;) {
    T changed = change(old);
    if (__atomic_compare_exchange(address, &old, &changed, false, __ATOMIC_RELAXED,
                                  __ATOMIC_RELAXED)) {
      return old;
    }
  }
}

template <class To, class From>
To BitsAs(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

}  // namespace zero::emulation

namespace zero::internal {

// Checks the limits of the launch as the driver does, then enqueues the grid.
template <class... Parameters, class... Arguments>
cudaError_t Launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                   size_t shared_bytes, cudaStream_t stream, Arguments&&... arguments) {
  constexpr size_t kParameterBytes = (sizeof(Parameters) + ... + 0);
  static_assert(kParameterBytes <= 4096, "a kernel's parameters take at most 4 KiB");
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7FFFFFFFu || grid.y > 65535 ||
      grid.z > 65535 || block.x == 0 || block.y == 0 || block.z == 0 ||
      uint64_t{block.x} * block.y * block.z > 1024 || block.z > 64) {
    return cudaErrorInvalidConfiguration;
  }
  if (shared_bytes > (227u << 10)) return cudaErrorInvalidValue;
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> parameters;
  };
  const Call call{kernel, std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)};
  return standin::EnqueueKernel(stream, name, [=] {
    emulation::Grid emulated;
    emulated.name = name;
    emulated.blocks = {grid.x, grid.y, grid.z};
    emulated.threads = {block.x, block.y, block.z};
    emulated.dynamic_shared_bytes = shared_bytes;
    emulated.body = [](const void* argument) {
      const Call* const each = static_cast<const Call*>(argument);
      std::apply(each->kernel, each->parameters);
    };
    emulated.argument = &call;
    emulation::RunGrid(emulated);
  });
}

}  // namespace zero::internal

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize) {
  return zero::emulation::ShuffleWarp(zero::emulation::WarpOperation::kShuffle, mask, value, lane,
                                      width);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  return zero::emulation::ShuffleWarp(zero::emulation::WarpOperation::kShuffleUp, mask, value,
                                      static_cast<int>(delta), width);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  return zero::emulation::ShuffleWarp(zero::emulation::WarpOperation::kShuffleDown, mask, value,
                                      static_cast<int>(delta), width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize) {
  return zero::emulation::ShuffleWarp(zero::emulation::WarpOperation::kShuffleXor, mask, value,
                                      lanes, width);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(zero::emulation::MeetWarp(
      zero::emulation::WarpOperation::kBallot, mask, predicate != 0 ? 1 : 0, 0, warpSize));
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate == 0 ? 1 : 0) == 0 ? 1 : 0;
}

template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return zero::emulation::AtomicChange(address, [value](T old) { return old + value; });
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return zero::emulation::AtomicChange(address,
                                       [value](T old) { return old < value ? value : old; });
}
template <class T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return zero::emulation::AtomicChange(address,
                                       [value](T old) { return value < old ? value : old; });
}
template <class T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return zero::emulation::AtomicChange(address, [value](T) { return value; });
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  return zero::emulation::AtomicChange(
      address, [compare, value](T old) { return old == compare ? value : old; });
}

template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
T __ldcs(const T* address) {
  return *address;
}
template <class T>
void __stcs(T* address, std::type_identity_t<T> value) {
  *address = value;
}

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}

inline unsigned __float_as_uint(float x) { return zero::emulation::BitsAs<unsigned>(x); }
inline int __float_as_int(float x) { return zero::emulation::BitsAs<int>(x); }
inline float __uint_as_float(unsigned x) { return zero::emulation::BitsAs<float>(x); }
inline float __int_as_float(int x) { return zero::emulation::BitsAs<float>(x); }
inline long long __double_as_longlong(double x) { return zero::emulation::BitsAs<long long>(x); }
inline double __longlong_as_double(long long x) { return zero::emulation::BitsAs<double>(x); }

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((uint64_t{a} * b) >> 32);
}
