// What the update kernels read from device memory, so that no step waits for the host.
#pragma once

#include <cstdint>

namespace zero {

// The decision about one step, made on the device from the ranks' norms.
struct StepScalars {
  int32_t apply = 0;                // 0: gradients were not finite; states stay as they are
  float divisor = 1;                // loss scale x (micro-batches x ranks, or the loss weights)
  float clip_coefficient = 1;       // 1 where nothing is clipped
  float sqrt_bias_correction2 = 1;  // sqrt(1 - beta2^t), t counts applied steps
  float beta1 = 0;                  // Adam's and Lion's; SGD's momentum
  float one_minus_beta1 = 1;        // rounded from double: 1 - 0.9f is 2.4e-8 off
  uint32_t random_key = 0;          // of the step, for stochastic rounding
};

// One parameter group in one step, computed in double and rounded once.
struct GroupScalars {
  float learning_rate = 0;
  float step_size = 0;     // learning_rate / (1 - beta1^t)
  float keep = 1;          // 1 - learning_rate x weight decay: AdamW, Lion
  float weight_decay = 0;  // added to the gradient: Adam, SGD
};

// Norm and non-finite elements of a run of elements.
struct NormPartial {
  double sum_of_squares = 0;
  int64_t non_finite = 0;                // elements that are inf or NaN
  int64_t first_non_finite = INT64_MAX;  // index of the first of them
};

}  // namespace zero
