// Checks of the arguments of kernels. Each gives kInvalidArgument naming kernel and argument.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "device/dtype.h"

namespace zero {

// n >= 0 and a multiple of `multiple`.
absl::Status CheckCount(const char* kernel, int64_t n, int64_t multiple = 1);

absl::Status CheckPointer(const char* kernel, const char* argument, const void* pointer);

// n elements at `in` and at `out` are the same memory of the same type, or do not overlap.
absl::Status CheckOverlap(const char* kernel, const void* in, DType in_type, const char* argument,
                          const void* out, DType out_type, int64_t n);

}  // namespace zero
