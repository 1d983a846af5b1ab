// The formulas of decide.h, for the host and for CUDA.
#pragma once

#include <cmath>

#include "kernels/decide.h"
#include "kernels/loss_scale_math.h"
#include "kernels/portable.h"

namespace zero {

ZERO_HOST_DEVICE void CombineNormsMath(const NormPartial* parts, const int64_t* bases,
                                       int64_t count, double loss_weight, int64_t* first_written,
                                       RankNorm* out) {
  RankNorm total;
  total.loss_weight = loss_weight;
  if (first_written != nullptr) {
    total.first_written = *first_written;
    *first_written = INT64_MAX;
  }
  for (int64_t i = 0; i < count; ++i) {
    total.sum_of_squares += parts[i].sum_of_squares;
    total.non_finite += parts[i].non_finite;
    if (parts[i].non_finite > 0) {
      const int64_t first = parts[i].first_non_finite + bases[i];
      if (first < total.first_non_finite) total.first_non_finite = first;
    }
  }
  *out = total;
}

ZERO_HOST_DEVICE void NoteNonFiniteMath(const NormPartial* part, int64_t base,
                                        int64_t* first_written) {
  if (part->non_finite == 0) return;
  const int64_t first = base + part->first_non_finite;
  if (first < *first_written) *first_written = first;
}

ZERO_HOST_DEVICE void MarkFailedMath(const int32_t* failed, RankNorm* norm) {
  if (ReadFlag(failed) != 0) norm->non_finite = kNormFailed;
}

ZERO_HOST_DEVICE void NoteFailureMath(const int32_t* group_failed, int32_t* note) {
  *note = ReadFlag(group_failed);
}

// The ranks' norms, added in rank order. record->group_failed: one of them is none.
ZERO_HOST_DEVICE RankNorm AddRanks(const DecideArguments& a, StepRecord* record) {
  RankNorm total;
  for (int64_t r = 0; r < a.rank_count; ++r) {
    const RankNorm& rank = a.ranks[r];
    total.sum_of_squares += rank.sum_of_squares;
    total.loss_weight += rank.loss_weight;
    total.non_finite += rank.non_finite;
    if (rank.non_finite == kNormFailed) record->group_failed = 1;
    if (rank.first_non_finite < record->first_non_finite) {
      record->first_non_finite = rank.first_non_finite;
      record->owner = static_cast<int32_t>(r);
    }
    if (rank.first_written < record->first_written) {
      record->first_written = rank.first_written;
      record->producer = static_cast<int32_t>(r);
    }
  }
  if (!(total.loss_weight > 0)) total.loss_weight = a.passes;
  record->non_finite = total.non_finite;
  record->loss_weight = total.loss_weight;
  return total;
}

// Counts, and moves the loss scale, after a step that was applied or skipped.
ZERO_HOST_DEVICE void FinishDecision(const DecideArguments& a, bool overflow) {
  StepState& state = *a.state;
  state.skipped += overflow ? 1 : 0;
  state.consecutive_skips = overflow ? state.consecutive_skips + 1 : 0;
  if (!UpdateLossScale(a.rule, overflow, &state.loss_scale)) {
    state.stop = StopReason::kScaleAtMinimum;
  } else if (a.max_consecutive_skips > 0 && state.consecutive_skips >= a.max_consecutive_skips) {
    state.stop = StopReason::kTooManySkips;
  }
  if (state.stop != StopReason::kNone) state.stop_step = a.step;
}

ZERO_HOST_DEVICE double DivisorOf(const DecideArguments& a, const StepRecord& record) {
  return record.loss_scale * record.loss_weight / a.predivided;
}

ZERO_HOST_DEVICE bool GroupFailed(const DecideArguments& a) {
  return a.group_failed != nullptr && ReadFlag(a.group_failed) != 0;
}

ZERO_HOST_DEVICE void DecideStepMath(const DecideArguments& a) {
  StepState& state = *a.state;
  StepRecord record;
  const RankNorm total = AddRanks(a, &record);
  record.loss_scale = static_cast<double>(state.loss_scale.scale);
  const double divisor = DivisorOf(a, record);
  record.gradient_norm = sqrt(total.sum_of_squares) / divisor;

  const int64_t count = state.applied + 1;
  int64_t row = 0;
  while (row < a.row_count && a.rows[row].count != count) ++row;
  const bool found = row < a.row_count;
  const bool group_failed = record.group_failed != 0 || GroupFailed(a);
  const bool overflow = a.check_overflow != 0 && total.non_finite != 0;
  if (found && !group_failed && !overflow && state.stop == StopReason::kNone &&
      a.rows[row].valid == 0) {
    state.stop = StopReason::kNoRow;
    state.stop_step = a.step;
  }
  const bool decides = found && !group_failed && state.stop == StopReason::kNone;
  record.row_missing = found ? 0 : 1;
  record.group_failed = group_failed ? 1 : 0;

  StepScalars scalars;
  scalars.divisor = static_cast<float>(divisor);
  if (found) {
    const StepRow& values = a.rows[row];
    record.learning_rate = values.learning_rate;
    scalars.sqrt_bias_correction2 = values.sqrt_bias_correction2;
    scalars.beta1 = values.beta1;
    scalars.one_minus_beta1 = values.one_minus_beta1;
    scalars.random_key = static_cast<uint32_t>(count);
    if (values.clip_norm > 0) {
      const double coefficient = values.clip_norm / (record.gradient_norm + 1e-6);
      if (coefficient < 1) record.clip_coefficient = coefficient;
    }
    scalars.clip_coefficient = static_cast<float>(record.clip_coefficient);
    for (int64_t g = 0; g < a.group_count; ++g) {
      a.groups[g] = a.row_groups[row * a.group_count + g];
    }
  }
  if (decides && !overflow) {
    scalars.apply = 1;
    state.applied = count;
    state.last_applied_step = a.step;
  }
  if (decides) FinishDecision(a, overflow);
  record.applied = scalars.apply;
  record.applied_steps = state.applied;
  record.last_applied_step = state.last_applied_step;
  record.skipped = state.skipped;
  record.consecutive_skips = state.consecutive_skips;
  record.next_loss_scale = static_cast<double>(state.loss_scale.scale);
  record.stop = state.stop;
  record.stop_step = state.stop_step;
  *a.scalars = scalars;
  *a.record = record;
}

ZERO_HOST_DEVICE void RecordNormsMath(const DecideArguments& a) {
  StepRecord& record = *a.record;
  StepRecord norms;
  const RankNorm total = AddRanks(a, &norms);
  record.gradient_norm = sqrt(total.sum_of_squares) / DivisorOf(a, record);
  record.non_finite = norms.non_finite;
  record.first_non_finite = norms.first_non_finite;
  record.owner = norms.owner;
  record.first_written = norms.first_written;
  record.producer = norms.producer;
  if (norms.group_failed != 0 || GroupFailed(a)) record.group_failed = 1;
}

}  // namespace zero
