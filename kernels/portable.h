// Lets plain g++ and nvcc compile the formulas of the *_math.h headers.
#pragma once

#if defined(__CUDACC__)
#define ZERO_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define ZERO_HOST_DEVICE inline
#endif
