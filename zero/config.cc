#include "zero/config.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero {
namespace {

absl::Status Check(bool right, const char* field, double value, const char* wanted) {
  if (right) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ": it must be ", wanted));
}

bool AtLeastZero(double value) { return std::isfinite(value) && value >= 0; }
bool PositiveFloat(double value) {
  return value >= std::numeric_limits<float>::min() && value <= std::numeric_limits<float>::max();
}

absl::Status CheckLossScale(const LossScale& scale) {
  ZERO_RETURN_IF_ERROR(Check(PositiveFloat(scale.scale), "loss_scale.scale", scale.scale,
                             "finite and positive in fp32"));
  if (scale.kind == LossScaling::kStatic) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(Check(scale.window >= 1, "loss_scale.window",
                             static_cast<double>(scale.window), "at least one step"));
  if (scale.kind == LossScaling::kGradScaler) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(Check(scale.hysteresis >= 1 && scale.hysteresis <= 1'000'000,
                             "loss_scale.hysteresis", static_cast<double>(scale.hysteresis),
                             "1 to 1000000 overflows"));
  return Check(PositiveFloat(scale.minimum) && scale.minimum <= scale.scale, "loss_scale.minimum",
               scale.minimum, "positive and not above loss_scale.scale");
}

absl::Status CheckMasters(const Config& config) {
  if (config.master == MasterKind::kSplit &&
      config.weight_rounding != WeightRounding::kNearestAway) {
    return absl::InvalidArgumentError(
        "weight_rounding: a split master is exact with nearest_away only");
  }
  return absl::OkStatus();
}

}  // namespace

const char* Name(OptimizerKind kind) {
  constexpr const char* kNames[] = {"adamw", "adam", "sgd", "lion"};
  return kNames[static_cast<int>(kind)];
}

const char* Name(MasterKind kind) {
  constexpr const char* kNames[] = {"fp32", "split", "none"};
  return kNames[static_cast<int>(kind)];
}

const char* Name(WeightRounding rounding) {
  return rounding == WeightRounding::kNearestAway ? "nearest_away" : "nearest_even";
}

const char* Name(LossScaling kind) {
  constexpr const char* kNames[] = {"static", "dynamic", "grad_scaler"};
  return kNames[static_cast<int>(kind)];
}

absl::Status Validate(const Config& config) {
  ZERO_RETURN_IF_ERROR(
      Check(config.stage >= 0 && config.stage <= 3, "stage", config.stage, "0, 1, 2 or 3"));
  ZERO_RETURN_IF_ERROR(Check(AtLeastZero(config.learning_rate), "learning_rate",
                             config.learning_rate, "finite and not negative"));
  ZERO_RETURN_IF_ERROR(
      Check(config.beta1 >= 0 && config.beta1 < 1, "beta1", config.beta1, "in [0, 1)"));
  ZERO_RETURN_IF_ERROR(
      Check(config.beta2 >= 0 && config.beta2 < 1, "beta2", config.beta2, "in [0, 1)"));
  ZERO_RETURN_IF_ERROR(Check(PositiveFloat(config.epsilon), "epsilon", config.epsilon,
                             "finite and positive in fp32"));
  ZERO_RETURN_IF_ERROR(
      Check(config.momentum >= 0 && config.momentum < 1, "momentum", config.momentum, "in [0, 1)"));
  ZERO_RETURN_IF_ERROR(Check(AtLeastZero(config.clip_norm), "clip_norm", config.clip_norm,
                             "0 (off) or a positive limit"));
  ZERO_RETURN_IF_ERROR(Check(config.max_consecutive_skips >= 0, "max_consecutive_skips",
                             static_cast<double>(config.max_consecutive_skips),
                             "0 (no limit) or a number of steps"));
  ZERO_RETURN_IF_ERROR(Check(PositiveFloat(config.gradient_predivide_factor),
                             "gradient_predivide_factor", config.gradient_predivide_factor,
                             "finite and positive in fp32"));
  ZERO_RETURN_IF_ERROR(CheckLossScale(config.loss_scale));
  ZERO_RETURN_IF_ERROR(CheckMasters(config));
  ZERO_RETURN_IF_ERROR(Check(config.reduce_bucket_size > 0, "reduce_bucket_size",
                             static_cast<double>(config.reduce_bucket_size), "positive"));
  ZERO_RETURN_IF_ERROR(
      Check(config.prefetch >= 0, "prefetch", config.prefetch, "0 or a number of units"));
  ZERO_RETURN_IF_ERROR(Check(!config.groups.empty() && config.groups.size() <= 256,
                             "the number of parameter groups",
                             static_cast<double>(config.groups.size()), "1 to 256"));
  for (const ParameterGroup& group : config.groups) {
    ZERO_RETURN_IF_ERROR(Check(AtLeastZero(group.learning_rate_factor), "learning_rate_factor",
                               group.learning_rate_factor, "finite and not negative"));
    ZERO_RETURN_IF_ERROR(Check(AtLeastZero(group.weight_decay), "weight_decay", group.weight_decay,
                               "finite and not negative"));
  }
  return absl::OkStatus();
}

}  // namespace zero
