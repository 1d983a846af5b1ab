#undef NDEBUG
#include "tests/device/gpu_failure.h"

#include <cassert>

namespace zero::test {
namespace {

__global__ void FailingKernel(int zero) { assert(zero != 0); }

}  // namespace

cudaError_t LaunchFailingKernel(cudaStream_t stream) {
  FailingKernel<<<1, 1, 0, stream>>>(0);
  return cudaGetLastError();
}

}  // namespace zero::test
