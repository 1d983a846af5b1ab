// How .cu files launch kernels and declare shared memory: one way for nvcc, and for g++, which
// compiles the same files against an emulation of the device in the tests.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "device/cuda_context.h"
#include "device/cuda_status.h"

#if defined(__CUDACC__)

// An array of `count` elements, a constant, in the memory of a block: type name[count].
#define ZERO_SHARED(type, name, count) __shared__ type name[count]

// The bytes given to LaunchKernel, as elements of `type`.
#define ZERO_DYNAMIC_SHARED(type, name)                                \
  extern __shared__ __align__(16) unsigned char zero_dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(zero_dynamic_shared)

namespace zero::internal {

template <class... Parameters, class... Arguments>
cudaError_t Launch(const char* /* name */, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                   size_t shared_bytes, cudaStream_t stream, Arguments&&... arguments) {
  constexpr size_t kWithoutAsking = 48 << 10;
  if (shared_bytes > kWithoutAsking) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace zero::internal

#else
#include "cuda_emulation.h"  // in the include path where g++ compiles .cu files
#endif

namespace zero {

// Enqueues `kernel` on `stream`, with that stream's GPU current. The arguments are copied. An error
// names the kernel and says what CUDA said (see CudaStatus); nothing is enqueued then.
template <class... Parameters, class... Arguments>
absl::Status LaunchKernel(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                          size_t shared_bytes, cudaStream_t stream, Arguments&&... arguments) {
  const bool clean = cudaPeekAtLastError() == cudaSuccess;
  int gpu = 0;
  cudaError_t error = cudaStreamGetDevice(stream, &gpu);
  if (error == cudaSuccess) {
    const CurrentCudaDevice current(gpu);
    error = current.error();
    if (error == cudaSuccess) {
      error = internal::Launch(name, kernel, grid, block, shared_bytes, stream,
                               std::forward<Arguments>(arguments)...);
    }
  }
  if (error == cudaSuccess) return absl::OkStatus();
  // The next call would report it again; what others left there stays.
  if (clean) (void)cudaGetLastError();
  return CudaStatus(
      error, absl::StrCat("kernel ", name, ": launch of (", grid.x, ", ", grid.y, ", ", grid.z,
                          ") blocks of ", block.x * block.y * block.z, " threads"));
}

}  // namespace zero
