#include "zero/config.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero {
namespace {

absl::Status Check(bool right, const std::string& field, double value, const char* wanted) {
  if (right) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ": it must be ", wanted));
}

bool AtLeastZero(double value) { return value >= 0 && value <= std::numeric_limits<float>::max(); }
bool PositiveFloat(double value) {
  return value >= std::numeric_limits<float>::min() && value <= std::numeric_limits<float>::max();
}

// Values of an enum class that a cast or a file may have made.
template <class Kind>
absl::Status CheckKind(Kind kind, Kind last, const char* field) {
  return Check(kind >= Kind{} && kind <= last, field, static_cast<double>(kind),
               "one of its named values");
}

absl::Status CheckKinds(const Config& config) {
  ZERO_RETURN_IF_ERROR(CheckKind(config.optimizer, OptimizerKind::kLion, "optimizer"));
  ZERO_RETURN_IF_ERROR(CheckKind(config.master, MasterKind::kNone, "master"));
  ZERO_RETURN_IF_ERROR(
      CheckKind(config.weight_rounding, WeightRounding::kNearestAway, "weight_rounding"));
  ZERO_RETURN_IF_ERROR(
      CheckKind(config.loss_scale.kind, LossScaling::kGradScaler, "loss_scale.kind"));
  ZERO_RETURN_IF_ERROR(CheckKind(config.accumulation, DType::kF16, "accumulation"));
  return CheckKind(config.communication.value_or(DType::kF32), DType::kF16, "communication");
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
  if (config.master == MasterKind::kNone &&
      config.weight_rounding != WeightRounding::kNearestEven) {
    return absl::InvalidArgumentError(
        "weight_rounding: without masters weights are rounded stochastically, not nearest_away");
  }
  if (config.master == MasterKind::kSplit &&
      config.weight_rounding != WeightRounding::kNearestAway) {
    return absl::InvalidArgumentError(
        "weight_rounding: a split master is exact with nearest_away only");
  }
  return absl::OkStatus();
}

absl::Status CheckOffload(const Config& config) {
  const Offload& offload = config.offload;
  ZERO_RETURN_IF_ERROR(CheckKind(offload.optimizer, Place::kNvme, "offload.optimizer"));
  ZERO_RETURN_IF_ERROR(CheckKind(offload.parameters, Place::kNvme, "offload.parameters"));
  const bool states = offload.optimizer != Place::kDevice;
  const bool weights = offload.parameters != Place::kDevice;
  if (states && config.stage < 1) {
    return absl::InvalidArgumentError(
        "offload.optimizer: stage 0 keeps all states on every device; stages 1 to 3 offload them");
  }
  if (weights && config.stage < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("offload.parameters: stage ", config.stage,
                     " keeps all weights on every device; stage 3 offloads its slices of them"));
  }
  if (weights && !states) {
    return absl::InvalidArgumentError(
        "offload.parameters: weights are offloaded only where the optimizer is: set "
        "offload.optimizer too");
  }
  if ((offload.optimizer == Place::kNvme || offload.parameters == Place::kNvme) &&
      offload.nvme_path.empty()) {
    return absl::InvalidArgumentError("offload.nvme_path: a folder on the disk is needed for nvme");
  }
  ZERO_RETURN_IF_ERROR(Check(offload.ratio > 0 && offload.ratio <= 1, "offload.ratio",
                             offload.ratio, "above 0 and at most 1"));
  ZERO_RETURN_IF_ERROR(Check(offload.piece_elements >= 2048 &&
                                 offload.piece_elements <= int64_t{1} << 30 &&
                                 offload.piece_elements % 2048 == 0,
                             "offload.piece_elements", static_cast<double>(offload.piece_elements),
                             "a multiple of 2048 of at most 2^30"));
  return Check(offload.buffer_count >= 2 && offload.buffer_count <= 1024, "offload.buffer_count",
               static_cast<double>(offload.buffer_count), "2 to 1024");
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

const char* Name(Place place) {
  constexpr const char* kNames[] = {"device", "cpu", "nvme"};
  return kNames[static_cast<int>(place)];
}

Offload OffloadOfStage(Offload offload, int stage) {
  if (stage < 1) offload.optimizer = Place::kDevice;
  if (stage < 3) offload.parameters = Place::kDevice;
  return offload;
}

absl::Status Validate(const Config& config) {
  ZERO_RETURN_IF_ERROR(CheckKinds(config));
  ZERO_RETURN_IF_ERROR(
      Check(config.stage >= 0 && config.stage <= 3, "stage", config.stage, "0, 1, 2 or 3"));
  ZERO_RETURN_IF_ERROR(Check(AtLeastZero(config.learning_rate), "learning_rate",
                             config.learning_rate, "finite in fp32 and not negative"));
  ZERO_RETURN_IF_ERROR(
      Check(config.beta1 >= 0 && config.beta1 < 1, "beta1", config.beta1, "in [0, 1)"));
  ZERO_RETURN_IF_ERROR(
      Check(config.beta2 >= 0 && config.beta2 < 1, "beta2", config.beta2, "in [0, 1)"));
  ZERO_RETURN_IF_ERROR(Check(PositiveFloat(config.epsilon), "epsilon", config.epsilon,
                             "finite and positive in fp32"));
  ZERO_RETURN_IF_ERROR(
      Check(config.momentum >= 0 && config.momentum < 1, "momentum", config.momentum, "in [0, 1)"));
  ZERO_RETURN_IF_ERROR(Check(config.clip_norm == 0 || PositiveFloat(config.clip_norm), "clip_norm",
                             config.clip_norm, "0 (off) or a limit that is positive in fp32"));
  ZERO_RETURN_IF_ERROR(Check(config.max_consecutive_skips >= 0, "max_consecutive_skips",
                             static_cast<double>(config.max_consecutive_skips),
                             "0 (no limit) or a number of steps"));
  ZERO_RETURN_IF_ERROR(Check(PositiveFloat(config.gradient_predivide_factor),
                             "gradient_predivide_factor", config.gradient_predivide_factor,
                             "finite and positive in fp32"));
  ZERO_RETURN_IF_ERROR(CheckLossScale(config.loss_scale));
  if (!config.check_overflow && config.loss_scale.kind != LossScaling::kStatic) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Config::check_overflow is false, but loss_scale.kind is ", Name(config.loss_scale.kind),
        ", which moves by what the check finds: check, or scale by static"));
  }
  ZERO_RETURN_IF_ERROR(CheckMasters(config));
  ZERO_RETURN_IF_ERROR(CheckOffload(config));
  ZERO_RETURN_IF_ERROR(Check(config.reduce_bucket_size > 0, "reduce_bucket_size",
                             static_cast<double>(config.reduce_bucket_size), "positive"));
  ZERO_RETURN_IF_ERROR(
      Check(config.prefetch >= 0, "prefetch", config.prefetch, "0 or a number of units"));
  ZERO_RETURN_IF_ERROR(Check(config.checkpoint_memory == 0 || config.checkpoint_memory >= 1 << 20,
                             "checkpoint_memory", static_cast<double>(config.checkpoint_memory),
                             "0 (none) or at least 1048576 bytes"));
  ZERO_RETURN_IF_ERROR(Check(!config.groups.empty() && config.groups.size() <= 256,
                             "the number of parameter groups",
                             static_cast<double>(config.groups.size()), "1 to 256"));
  for (size_t g = 0; g < config.groups.size(); ++g) {
    const ParameterGroup& group = config.groups[g];
    const std::string field = absl::StrCat("groups[", g, "].");
    ZERO_RETURN_IF_ERROR(Check(AtLeastZero(group.learning_rate_factor),
                               field + "learning_rate_factor", group.learning_rate_factor,
                               "finite in fp32 and not negative"));
    ZERO_RETURN_IF_ERROR(Check(AtLeastZero(group.weight_decay), field + "weight_decay",
                               group.weight_decay, "finite in fp32 and not negative"));
  }
  return absl::OkStatus();
}

}  // namespace zero
