// The rules of loss_scale.h, for the host and for CUDA.
#pragma once

#include <cmath>

#include "kernels/loss_scale.h"
#include "kernels/portable.h"

namespace zero {

// Twice the scale, as long as that is finite in fp32.
ZERO_HOST_DEVICE float DoubledScale(float scale) { return scale < 1.7e38f ? scale * 2.0f : scale; }

// deepspeed/runtime/fp16/loss_scaler.py, DynamicLossScaler.update_scale with
// raise_error_at_min_scale.
ZERO_HOST_DEVICE bool UpdateDynamicScale(const LossScaleRule& rule, bool overflow,
                                         LossScaleState* state) {
  if (overflow) {
    if (rule.hysteresis == 1 || state->hysteresis == 1) {
      if (state->scale <= rule.minimum) return false;
      const float halved = state->scale * 0.5f;
      state->scale = halved > rule.minimum ? halved : rule.minimum;
    } else {
      --state->hysteresis;
    }
    state->last_overflow = state->iterations;
  } else {
    if (rule.consecutive_hysteresis != 0) state->hysteresis = rule.hysteresis;
    const int64_t stable = state->iterations - state->last_overflow - 1;
    if (stable > 0 && stable % rule.window == 0) {
      state->hysteresis = rule.hysteresis;
      state->scale = DoubledScale(state->scale);
    }
  }
  ++state->iterations;
  return true;
}

// torch/amp/grad_scaler.py, update, with growth 2 and backoff 1/2. The scale stays above 0.
ZERO_HOST_DEVICE void UpdateGradScaler(const LossScaleRule& rule, bool overflow,
                                       LossScaleState* state) {
  if (overflow) {
    if (state->scale > 2.4e-38f) state->scale *= 0.5f;
    state->clean = 0;
  } else if (++state->clean == rule.window) {
    state->scale = DoubledScale(state->scale);
    state->clean = 0;
  }
  ++state->iterations;
}

// After the step was decided with the scale that its loss was multiplied by. False: the scale can
// fall no further and the run must end; nothing changed.
ZERO_HOST_DEVICE bool UpdateLossScale(const LossScaleRule& rule, bool overflow,
                                      LossScaleState* state) {
  if (rule.kind == LossScaleKind::kDynamic) return UpdateDynamicScale(rule, overflow, state);
  if (rule.kind == LossScaleKind::kGradScaler) {
    UpdateGradScaler(rule, overflow, state);
  } else {
    ++state->iterations;
  }
  return true;
}

}  // namespace zero
