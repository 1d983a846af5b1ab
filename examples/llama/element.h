// Elements in memory as floats, for loops that need no SIMD: ToFloat, and the way back.
#pragma once

#include "kernels/element_type.h"

namespace zero::llama {

using zero::ToFloat;

// To nearest, ties to even; NaN stays NaN.
template <class T>
T FromFloat(float x) {
  T result;
  RoundTo(x, &result);
  return result;
}

}  // namespace zero::llama
