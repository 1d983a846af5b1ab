// The one place where a DType becomes a C++ type. A further type needs a case in each function here
// and LoadElements and StoreElements in simd-inl.h.
#pragma once

#include "device/dtype.h"
#include "kernels/bfloat16_math.h"

namespace zero {

inline bool HasElementType(DType type) { return type == DType::kF32 || type == DType::kBF16; }

// Calls body(T()) with the type of the elements. The type has been checked before.
template <class Body>
void WithElementType(DType type, const Body& body) {
  switch (type) {
    case DType::kF32:
      body(float());
      return;
    case DType::kBF16:
      body(BFloat16());
      return;
    case DType::kF16:
      return;
  }
}

}  // namespace zero
