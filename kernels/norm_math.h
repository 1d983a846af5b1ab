// The tree of Norm in kernels.h, for the host and for CUDA.
#pragma once

#include <cstdint>

#include "kernels/bfloat16_math.h"
#include "kernels/kernels.h"
#include "kernels/portable.h"

namespace zero {

inline constexpr int64_t kNormLanes = 32;

// The square of an fp32 is exact in double: only the sum rounds.
template <class T>
ZERO_HOST_DEVICE double SquareMath(T x) {
  const double wide = static_cast<double>(ToFloat(x));
  return wide * wide;
}

// Adds the lanes in pairs; overwrites them.
ZERO_HOST_DEVICE double AddLanesMath(double* lanes) {
  for (int64_t half = kNormLanes / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

// Fills the counts of `partial` from x[0..n), whose first element has index `first`.
template <class T>
ZERO_HOST_DEVICE void CountNonFiniteMath(const T* x, int64_t n, int64_t first,
                                         NormPartial* partial) {
  for (int64_t i = 0; i < n; ++i) {
    if (!IsNonFinite(ToFloat(x[i]))) continue;
    if (partial->non_finite == 0) partial->first_non_finite = first + i;
    ++partial->non_finite;
  }
}

// One chunk of n <= kNormChunk elements, whose first element has index `first`.
template <class T>
ZERO_HOST_DEVICE NormPartial NormChunkMath(const T* x, int64_t n, int64_t first) {
  double lanes[kNormLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % kNormLanes] += SquareMath(x[i]);
  NormPartial partial;
  partial.sum_of_squares = AddLanesMath(lanes);
  CountNonFiniteMath(x, n, first, &partial);
  return partial;
}

// Chunks in order.
ZERO_HOST_DEVICE NormPartial AddChunksMath(const NormPartial* chunks, int64_t count) {
  NormPartial total;
  for (int64_t i = 0; i < count; ++i) {
    total.sum_of_squares += chunks[i].sum_of_squares;
    if (total.non_finite == 0) total.first_non_finite = chunks[i].first_non_finite;
    total.non_finite += chunks[i].non_finite;
  }
  return total;
}

}  // namespace zero
