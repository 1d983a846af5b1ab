// The formula of Adam in kernels.h for one element, for the host and for CUDA.
#pragma once

#include <cmath>

#include "kernels/kernels.h"
#include "kernels/portable.h"

namespace zero {

// Each product is rounded before it is added: with contraction off this gives the same bits where
// there is a fused multiply-add and where there is none.
ZERO_HOST_DEVICE void AdamMath(const AdamArguments& a, const StepScalars& s,
                               const GroupScalars& row, float gradient, float* master,
                               float* moment1, float* moment2) {
  float g = (gradient / s.divisor) * s.clip_coefficient;
  if (row.weight_decay != 0) {
    const float decay = row.weight_decay * *master;
    g = g + decay;
  }
  const float kept = *master * row.keep;
  const float difference = g - *moment1;
  const float move = s.one_minus_beta1 * difference;
  const float m = *moment1 + move;
  const float decayed = a.beta2 * *moment2;
  const float scaled = a.one_minus_beta2 * g;
  const float square = scaled * g;
  const float v = decayed + square;
  const float root = sqrtf(v) / s.sqrt_bias_correction2;
  const float denominator = root + a.epsilon;
  const float numerator = row.step_size * m;
  *moment1 = m;
  *moment2 = v;
  *master = kept - numerator / denominator;
}

}  // namespace zero
