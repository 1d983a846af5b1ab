// Lets plain g++ and nvcc compile the formulas of the *_math.h headers.
#pragma once

#if defined(__CUDACC__)
#define ZERO_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define ZERO_HOST_DEVICE inline
#endif

namespace zero {

// What another thread, or the host beside a GPU, may write meanwhile.
ZERO_HOST_DEVICE int ReadFlag(const int* flag) {
#if defined(__CUDA_ARCH__)
  return *static_cast<const volatile int*>(flag);
#else
  return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
#endif
}

}  // namespace zero
