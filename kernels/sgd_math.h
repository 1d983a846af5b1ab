// The formula of Sgd in kernels.h for one element, for the host and for CUDA.
#pragma once

#include "kernels/kernels.h"
#include "kernels/portable.h"

namespace zero {

// moment1 may be null: then there is no momentum. Products are rounded on their own, see
// adam_math.h.
ZERO_HOST_DEVICE void SgdMath(const SgdArguments& a, const StepScalars& s, const GroupScalars& row,
                              float gradient, float* master, float* moment1) {
  float g = (gradient / s.divisor) * s.clip_coefficient;
  const float decay = row.weight_decay * *master;
  g = g + decay;
  if (moment1 != nullptr) {
    const float kept = s.beta1 * *moment1;
    const float m = kept + g;
    *moment1 = m;
    if (a.nesterov) {
      const float ahead = s.beta1 * m;
      g = g + ahead;
    } else {
      g = m;
    }
  }
  const float update = row.learning_rate * g;
  *master = *master - update;
}

}  // namespace zero
