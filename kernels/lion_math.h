// The formula of Lion in kernels.h for one element, for the host and for CUDA.
#pragma once

#include "kernels/kernels.h"
#include "kernels/portable.h"

namespace zero {

// Products are rounded on their own, see adam_math.h.
ZERO_HOST_DEVICE void LionMath(const LionArguments& a, const StepScalars& s,
                               const GroupScalars& row, float gradient, float* master,
                               float* moment1) {
  const float g = (gradient / s.divisor) * s.clip_coefficient;
  const float kept = *master * row.keep;
  const float old = s.beta1 * *moment1;
  const float fresh = s.one_minus_beta1 * g;
  const float c = old + fresh;
  // c + 0 is 0 where c is a zero of either sign; a NaN stays one.
  const float move = c > 0 ? row.learning_rate : c < 0 ? -row.learning_rate : c + 0.0f;
  const float remembered = a.beta2 * *moment1;
  const float added = a.one_minus_beta2 * g;
  *moment1 = remembered + added;
  *master = kept - move;
}

}  // namespace zero
