// A kernel that fails on purpose. After it the process has no GPU.
#pragma once

#include <cuda_runtime_api.h>

namespace zero::test {

// Its streams report cudaErrorAssert.
cudaError_t LaunchFailingKernel(cudaStream_t stream);

}  // namespace zero::test
