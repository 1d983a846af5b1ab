// The formulas of decide.h, for the host and for CUDA.
#pragma once

#include <cmath>

#include "kernels/decide.h"
#include "kernels/portable.h"

namespace zero {

ZERO_HOST_DEVICE void CombineNormsMath(const NormPartial* parts, const int64_t* bases,
                                       int64_t count, double loss_weight, RankNorm* out) {
  RankNorm total;
  total.loss_weight = loss_weight;
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

ZERO_HOST_DEVICE void DecideStepMath(const DecideArguments& a) {
  double sum_of_squares = 0;
  double loss_weight = 0;
  int64_t non_finite = 0;
  int64_t first = INT64_MAX;
  for (int64_t r = 0; r < a.rank_count; ++r) {
    sum_of_squares += a.ranks[r].sum_of_squares;
    loss_weight += a.ranks[r].loss_weight;
    non_finite += a.ranks[r].non_finite;
    if (a.ranks[r].first_non_finite < first) first = a.ranks[r].first_non_finite;
  }
  if (!(loss_weight > 0)) loss_weight = a.passes;
  const double divisor = static_cast<double>(a.state->loss_scale) * loss_weight;
  const double norm = sqrt(sum_of_squares) / divisor;

  const int64_t count = a.state->applied + 1;
  int64_t row = 0;
  while (row < a.row_count && a.rows[row].count != count) ++row;
  const bool found = row < a.row_count;
  const bool group_failed = a.group_failed != nullptr && ReadFlag(a.group_failed) != 0;
  const bool apply = found && non_finite == 0 && !group_failed;

  StepRecord record;
  record.loss_scale = static_cast<double>(a.state->loss_scale);
  record.loss_weight = loss_weight;
  record.gradient_norm = norm;
  record.first_non_finite = first;
  record.row_missing = found ? 0 : 1;
  record.group_failed = group_failed ? 1 : 0;
  StepScalars scalars;
  scalars.divisor = static_cast<float>(divisor);
  if (found) {
    record.learning_rate = a.rows[row].learning_rate;
    scalars.sqrt_bias_correction2 = a.rows[row].sqrt_bias_correction2;
    scalars.beta1 = a.rows[row].beta1;
    scalars.one_minus_beta1 = a.rows[row].one_minus_beta1;
    scalars.random_key = static_cast<uint32_t>(count);
    if (a.rows[row].clip_norm > 0) {
      const double coefficient = a.rows[row].clip_norm / (norm + 1e-6);
      if (coefficient < 1) record.clip_coefficient = coefficient;
    }
    scalars.clip_coefficient = static_cast<float>(record.clip_coefficient);
    for (int64_t g = 0; g < a.group_count; ++g) {
      a.groups[g] = a.row_groups[row * a.group_count + g];
    }
  }
  if (apply) {
    scalars.apply = 1;
    a.state->applied = count;
    a.state->last_applied_step = a.step;
  }
  record.applied = scalars.apply;
  record.applied_steps = a.state->applied;
  record.last_applied_step = a.state->last_applied_step;
  *a.scalars = scalars;
  *a.record = record;
}

}  // namespace zero
