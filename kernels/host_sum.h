// The ordered sum of parts that lie anywhere in host memory.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "device/dtype.h"
#include "device/thread_pool.h"

namespace zero {

// Part p is the n elements at parts[p]. The formula is that of OrderedSum (kernels.h), and so are
// the bits.
struct HostSumArguments {
  absl::Span<const void* const> parts;  // one or more
  DType part_type = DType::kF32;
  void* out = nullptr;  // [n]; may be one of the parts, if it has their type
  DType out_type = DType::kF32;
  bool accumulate = false;
  int64_t n = 0;
};

// kInvalidArgument naming what is wrong.
absl::Status CheckHostSum(const HostSumArguments& arguments);

// Adds now, on the calling thread and those of `pool`, which may be null. The arguments are those
// that CheckHostSum accepts.
void HostSum(const HostSumArguments& arguments, ThreadPool* pool);

}  // namespace zero
