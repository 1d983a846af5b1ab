// One element at a time, on the host: for checks and benchmarks, not for loops that matter.
#pragma once

#include <cstdint>

#include "device/dtype.h"
#include "kernels/bfloat16_math.h"

namespace zero {

// Element i of an array of fp32 or bf16.
inline float LoadElement(const void* data, DType type, int64_t i) {
  return type == DType::kF32 ? static_cast<const float*>(data)[i]
                             : ToFloat(static_cast<const BFloat16*>(data)[i]);
}

// Rounded to nearest, ties to even.
inline void StoreElement(void* data, DType type, int64_t i, float value) {
  if (type == DType::kF32) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<BFloat16*>(data)[i] = ToBFloat16(value);
  }
}

}  // namespace zero
