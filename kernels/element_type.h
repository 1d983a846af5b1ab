// The one place where a DType becomes a C++ type. A further type needs a case in each function here
// and LoadElements and StoreElements in simd-inl.h and elements.cuh.
#pragma once

#include "device/dtype.h"
#include "kernels/bfloat16_math.h"

namespace zero {

inline bool HasElementType(DType type) { return type == DType::kF32 || type == DType::kBF16; }

// body(T()) with the type of the elements, which CheckType has accepted.
template <class Body>
auto WithElementType(DType type, const Body& body) {
  if (type == DType::kBF16) return body(BFloat16());
  return body(float());
}

}  // namespace zero
