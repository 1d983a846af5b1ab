// The scalar kernels of a step: one rank's norm from its parts, and the decision about the step
// from every rank's norm. Both run on one thread of the device; the host never waits for them.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "device/stream.h"
#include "kernels/step_scalars.h"

namespace zero {

// What ranks exchange before a step.
struct RankNorm {
  double sum_of_squares = 0;
  double loss_weight = 0;
  int64_t non_finite = 0;
  int64_t first_non_finite = INT64_MAX;  // index in the layout of the whole model
};

// out->sum_of_squares = parts[0] + parts[1] + ... in this order; first_non_finite is the smallest
// parts[i].first_non_finite + bases[i]. Enqueues; all pointers in device memory.
absl::Status CombineNorms(const Stream& stream, const NormPartial* parts, const int64_t* bases,
                          int64_t count, double loss_weight, RankNorm* out);

// One value of the schedule: what a step would use if it were the `count`-th applied one.
struct StepRow {
  int64_t count = 0;
  double learning_rate = 0;
  double clip_norm = 0;  // 0: no clipping
  float sqrt_bias_correction2 = 1;
  float beta1 = 0;
  float one_minus_beta1 = 1;
};

// Lives on the device from Create on.
struct StepState {
  int64_t applied = 0;
  int64_t last_applied_step = 0;  // DecideArguments::step of the last that applied
  float loss_scale = 1;
};

// What the host learns about a step, copied to it when the step has run.
struct StepRecord {
  int64_t applied_steps = 0;
  int32_t applied = 0;
  int32_t row_missing = 0;        // 1: no row for this count, the step did nothing
  int32_t group_failed = 0;       // 1: the norms were not exchanged, the step did nothing
  int64_t last_applied_step = 0;  // of this step or one before: it may be running still
  double gradient_norm = 0;
  double clip_coefficient = 1;
  double learning_rate = 0;
  double loss_scale = 1;
  double loss_weight = 0;
  int64_t first_non_finite = INT64_MAX;
};

// With S = sum over ranks of sum_of_squares in rank order, W = the sum of loss weights where that
// is positive, else `passes`, D = state->loss_scale x W:
//   norm = sqrt(S) / D;   clip = min(1, clip_norm / (norm + 1e-6)), as torch.nn.utils does
// The step applies if no element of any rank was inf or NaN and *group_failed is 0; then
// state->applied grows by one and the row with that count fills scalars and groups; the count is
// the random key of the step.
struct DecideArguments {
  const RankNorm* ranks = nullptr;
  int64_t rank_count = 0;
  double passes = 1;                      // ranks x micro-batches
  int64_t step = 0;                       // which call this is, for the record
  const int32_t* group_failed = nullptr;  // ProcessGroup::failure_flag; null: 0
  const StepRow* rows = nullptr;
  const GroupScalars* row_groups = nullptr;  // [row_count][group_count]
  int64_t row_count = 0;
  int64_t group_count = 0;
  StepState* state = nullptr;
  StepScalars* scalars = nullptr;
  GroupScalars* groups = nullptr;  // [group_count]
  StepRecord* record = nullptr;
};
absl::Status DecideStep(const Stream& stream, const DecideArguments& arguments);

}  // namespace zero
