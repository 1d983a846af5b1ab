// What CUDA's error codes mean to the caller. Not for users: it names the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace zero {

// The status of the CUDA call named `call`, by what can be done about it: kResourceExhausted (a
// smaller request), kUnavailable (no usable driver or GPU: says so and names `--device host`),
// kInvalidArgument, kUnimplemented, and kInternal for the rest, faults of kernels among it.
absl::Status CudaStatus(cudaError_t code, absl::string_view call);

// True for errors after which the process can do nothing more on that GPU: every later call returns
// the same.
bool LosesContext(cudaError_t code);

}  // namespace zero
