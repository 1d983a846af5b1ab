// The formula of Sgd in kernels.h for one element, for the host and for CUDA.
#pragma once

#include "kernels/kernels.h"
#include "kernels/portable.h"

namespace zero {

// moment1 may be null: then there is no momentum. Products are rounded on their own, see
// adamw_math.h.
ZERO_HOST_DEVICE void SgdMath(const SgdArguments& a, const StepScalars& s, const GroupScalars& row,
                              float gradient, float* master, float* moment1) {
  const float g = (gradient / s.divisor) * s.clip_coefficient;
  const float decay = row.weight_decay * *master;
  float m = g + decay;
  if (moment1 != nullptr) {
    const float kept = a.momentum * *moment1;
    m = kept + m;
    *moment1 = m;
  }
  const float update = row.learning_rate * m;
  *master = *master - update;
}

}  // namespace zero
