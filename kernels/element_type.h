// The one place where a DType becomes a C++ type. A further type needs a case here and LoadElements
// and StoreElements in simd-inl.h and elements.cuh.
#pragma once

#include "device/dtype.h"
#include "kernels/bfloat16_math.h"
#include "kernels/float16_math.h"

namespace zero {

// body(T()) with the type of the elements.
template <class Body>
auto WithElementType(DType type, const Body& body) {
  if (type == DType::kBF16) return body(BFloat16());
  if (type == DType::kF16) return body(Float16());
  return body(float());
}

}  // namespace zero
