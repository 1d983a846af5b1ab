// The scalar kernels of a step: one rank's norm from its parts, the decision about the step from
// every rank's norm, and whether the group lived to its end. Each runs on one thread of the device;
// the host never waits for them.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "device/stream.h"
#include "kernels/loss_scale.h"
#include "kernels/step_scalars.h"

namespace zero {

inline constexpr int64_t kNormFailed = -1;

// What ranks exchange before a step.
struct RankNorm {
  double sum_of_squares = 0;
  double loss_weight = 0;
  int64_t non_finite = 0;                // kNormFailed: what was added up may be anything
  int64_t first_non_finite = INT64_MAX;  // index in the layout of the whole model
  int64_t first_written = INT64_MAX;     // the same in what the rank wrote, where that is checked
};

// out->sum_of_squares = parts[0] + parts[1] + ... in this order; first_non_finite is the smallest
// parts[i].first_non_finite + bases[i]. Takes over *first_written and sets it to INT64_MAX for the
// next step; null: there is none. Enqueues; all pointers in device memory.
absl::Status CombineNorms(const Stream& stream, const NormPartial* parts, const int64_t* bases,
                          int64_t count, double loss_weight, int64_t* first_written, RankNorm* out);

// *first_written = min(*first_written, base + part->first_non_finite) where `part` has any.
absl::Status NoteNonFinite(const Stream& stream, const NormPartial* part, int64_t base,
                           int64_t* first_written);

// norm->non_finite = kNormFailed where *failed, read when the stream comes to it, is not 0.
absl::Status MarkFailed(const Stream& stream, const int32_t* failed, RankNorm* norm);

// One value of the schedule: what a step would use if it were the `count`-th applied one.
struct StepRow {
  int64_t count = 0;
  double learning_rate = 0;
  double clip_norm = 0;  // 0: no clipping
  float sqrt_bias_correction2 = 1;
  float beta1 = 0;
  float one_minus_beta1 = 1;
  int32_t valid = 1;  // 0: the schedules give no such values
};

// Why steps do nothing any more. Once set it stays.
enum class StopReason : int32_t { kNone, kScaleAtMinimum, kTooManySkips, kNoRow };

// Lives on the device from Create on.
struct StepState {
  int64_t applied = 0;
  int64_t last_applied_step = 0;  // DecideArguments::step of the last that applied
  int64_t skipped = 0;
  int64_t consecutive_skips = 0;
  LossScaleState loss_scale;
  StopReason stop = StopReason::kNone;
  int64_t stop_step = 0;  // DecideArguments::step that set `stop`
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
  double loss_scale = 1;       // that the loss was multiplied by
  double next_loss_scale = 1;  // of the next step
  double loss_weight = 0;
  int64_t skipped = 0;
  int64_t consecutive_skips = 0;
  int64_t non_finite = 0;                // elements of the sums that are inf or NaN
  int64_t first_non_finite = INT64_MAX;  // index of the first, and the rank that owns it
  int32_t owner = -1;
  int32_t producer = -1;              // the rank with the smallest first_written, and that
  int64_t first_written = INT64_MAX;  // where what was written is checked
  StopReason stop = StopReason::kNone;
  int64_t stop_step = 0;
};

// With S = sum over ranks of sum_of_squares in rank order, W = the sum of loss weights where that
// is positive, else `passes`, D = loss scale x W / predivided:
//   norm = sqrt(S) / D;   clip = min(1, clip_norm / (norm + 1e-6)), as torch.nn.utils does
// The step applies if no element of any rank was inf or NaN (or check_overflow is 0), no rank's
// norm is kNormFailed and *group_failed is 0; then state->applied grows by one and the row with
// that count fills scalars and groups; the count is the random key of the step. A step with inf or
// NaN is skipped. After either, the loss scale moves by `rule`. A skip that it cannot answer, or
// the max_consecutive_skips-th in a row (0: no limit), sets state->stop, as does a row that is not
// valid: this step and all later ones do nothing.
struct DecideArguments {
  const RankNorm* ranks = nullptr;
  int64_t rank_count = 0;
  double passes = 1;                      // ranks x micro-batches
  double predivided = 1;                  // what gradients were divided by before they were sent
  int64_t step = 0;                       // which call this is, for the record
  const int32_t* group_failed = nullptr;  // ProcessGroup::failure_flag; null: 0
  const StepRow* rows = nullptr;
  const GroupScalars* row_groups = nullptr;  // [row_count][group_count]
  int64_t row_count = 0;
  int64_t group_count = 0;
  LossScaleRule rule;
  int32_t check_overflow = 1;
  int64_t max_consecutive_skips = 0;
  StepState* state = nullptr;
  StepScalars* scalars = nullptr;
  GroupScalars* groups = nullptr;  // [group_count]
  StepRecord* record = nullptr;
};
absl::Status DecideStep(const Stream& stream, const DecideArguments& arguments);

// After a DecideStep that knew no norms, in which check_overflow was 0 and no row clips: puts what
// `ranks` say now into *record, as DecideStep would have. Reads ranks, rank_count, passes,
// predivided and group_failed; nothing but the record changes.
absl::Status RecordNorms(const Stream& stream, const DecideArguments& arguments);

// *note = *group_failed, read when the stream comes to it: 0 says that what the stream ran before
// was not let go by a group that failed.
absl::Status NoteFailure(const Stream& stream, const int32_t* group_failed, int32_t* note);

}  // namespace zero
