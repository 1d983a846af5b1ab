// zero-bench kernels on a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/samples.h"

namespace zero::bench {

struct CudaKernelTime {
  std::string kernel;
  std::string types;
  double bytes = 0;  // read and written, an element
  Samples samples;   // seconds of one run over `elements`
};

struct CudaKernelTimes {
  std::string gpu;
  std::vector<CudaKernelTime> rows;  // the first is the copy on the device
};

// Each kernel on `elements` values that vary, a multiple of 64, `repeats` times; each sample is the
// mean of a row of runs, so that the host's launches hide behind the GPU's work.
absl::StatusOr<CudaKernelTimes> TimeCudaKernels(int64_t elements, int64_t repeats);

}  // namespace zero::bench
