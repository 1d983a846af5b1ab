// One element at a time, on the host: for checks and benchmarks, not for loops that matter.
#pragma once

#include <cstdint>

#include "kernels/element_type.h"

namespace zero {

// Element i of an array.
inline float LoadElement(const void* data, DType type, int64_t i) {
  return WithElementType(
      type, [&](auto element) { return ToFloat(static_cast<const decltype(element)*>(data)[i]); });
}

// Rounded to nearest, ties to even.
inline void StoreElement(void* data, DType type, int64_t i, float value) {
  WithElementType(type,
                  [&](auto element) { RoundTo(value, static_cast<decltype(element)*>(data) + i); });
}

}  // namespace zero
