#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "zero/deepspeed_sections.h"

namespace zero {
namespace {

bool PositiveFloat(double value) {
  return value >= std::numeric_limits<float>::min() && value <= std::numeric_limits<float>::max();
}
bool ScaleOrDynamic(double value) { return value == 0 || PositiveFloat(value); }
bool NotNegative(double value) { return value >= 0; }

constexpr int64_t kMany = std::numeric_limits<int64_t>::max();

// One of the two switches against the dtype that the caller asks for.
void CheckSwitch(DeepSpeedValues& values, const std::string& path, std::optional<bool> on,
                 const std::string& name, const CallerValue& given, const std::string& dtype) {
  if (!on.has_value() || *on == (dtype == name)) return;
  values.Problem(path, absl::StrCat(values.Spelled(path), " is ", *on ? "true" : "false", ", but ",
                                    given.name, " is \"", dtype, "\""));
}

DType ReadDType(DeepSpeedValues& values) {
  const std::optional<bool> fp16 = values.MaybeSwitch("fp16.enabled");
  const std::optional<bool> bf16 = values.MaybeSwitch("bf16.enabled");
  if (fp16.value_or(false) && bf16.value_or(false)) {
    values.Problem("bf16.enabled", absl::StrCat("fp16.enabled and ", values.Spelled("bf16.enabled"),
                                                " are both true; keep one"));
  }
  const CallerValue* given = values.Given("dtype");
  const std::optional<std::string> dtype = values.GivenAs<std::string>("dtype");
  if (dtype.has_value() && *dtype != "fp32" && *dtype != "fp16" && *dtype != "bf16") {
    values.WrongGiven("dtype", "fp32, fp16 or bf16");
    return DType::kF32;
  }
  if (dtype.has_value()) {
    CheckSwitch(values, "fp16.enabled", fp16, "fp16", *given, *dtype);
    CheckSwitch(values, "bf16.enabled", bf16, "bf16", *given, *dtype);
  }
  if (fp16.value_or(false)) return DType::kF16;
  if (bf16.value_or(false)) return DType::kBF16;
  if (dtype.has_value()) return ParseDType(*dtype).value_or(DType::kF32);
  return values.IsAuto("bf16.enabled") ? DType::kBF16 : DType::kF32;
}

// Halvings from the start to the minimum, which an overflow a step may need.
int64_t Halvings(const LossScale& scale) {
  return static_cast<int64_t>(std::ceil(std::log2(scale.scale / scale.minimum)));
}

// Keys of fp16 that have no effect, and so are not in force.
void Ignore(DeepSpeedValues& values, const std::vector<std::string>& keys, const std::string& why) {
  for (const std::string& key : keys) {
    const std::string path = absl::StrCat("fp16.", key);
    values.Forget(path);
    if (values.Find(path) == nullptr || values.IsAuto(path)) continue;
    values.Note(absl::StrCat(values.Spelled(path), " is ignored: ", why));
  }
}

void ReadLossScale(DeepSpeedValues& values, DeepSpeedConfig& result) {
  const double fixed =
      values.Number("fp16.loss_scale", 0, ScaleOrDynamic, "0 (dynamic) or a finite positive scale");
  LossScale dynamic;
  dynamic.kind = LossScaling::kDynamic;
  const int64_t power = values.Count("fp16.initial_scale_power", 16, 0, 127);
  dynamic.scale = std::ldexp(1.0, static_cast<int>(power));
  dynamic.window = values.Count("fp16.loss_scale_window", 1000, 1, kMany);
  dynamic.hysteresis = values.Count("fp16.hysteresis", 2, 1, 1'000'000);
  dynamic.consecutive_hysteresis = values.Switch("fp16.consecutive_hysteresis", false);
  dynamic.minimum = values.Number("fp16.min_loss_scale", 1, PositiveFloat, "finite and positive");
  const std::vector<std::string> rules = {"initial_scale_power", "loss_scale_window", "hysteresis",
                                          "consecutive_hysteresis", "min_loss_scale"};
  if (result.dtype != DType::kF16) {  // the scale is 1
    const std::string why =
        absl::StrCat("the run is in ", Name(result.dtype), ", and fp16.enabled is not true");
    Ignore(values, {"loss_scale"}, why);
    Ignore(values, rules, why);
    return;
  }
  if (fixed > 0) {
    Ignore(values, rules,
           absl::StrCat("fp16.loss_scale is ", ShortestText(fixed), ", which stays as it is"));
    result.config.loss_scale.scale = fixed;
    return;
  }
  if (dynamic.minimum > dynamic.scale) {
    values.Wrong("fp16.min_loss_scale", ShortestText(dynamic.minimum),
                 absl::StrCat("at most the first scale, 2^", power));
    return;
  }
  result.config.loss_scale = dynamic;
  result.config.max_consecutive_skips =
      std::max(result.config.max_consecutive_skips, Halvings(dynamic) + dynamic.hysteresis + 1);
}

// DeepSpeed honours it in bf16 only, and there not in stage 3.
void ReadOverflowCheck(DeepSpeedValues& values, DeepSpeedConfig& result) {
  const std::string path = "bf16.check_grad_overflow";
  const bool check = values.Switch(path, true);
  const bool given = values.Given(path) != nullptr;
  if (result.dtype == DType::kBF16 || given) result.config.check_overflow = check;
  if (result.dtype == DType::kBF16) return;
  values.Forget(path);
  if (check || given) return;
  values.Note(absl::StrCat(values.Spelled(path), " is ignored: the run is in ", Name(result.dtype),
                           ", where gradients are checked"));
}

// What the caller asks for, or "fp32".
std::string GivenMaster(DeepSpeedValues& values) {
  const std::optional<std::string> name = values.GivenAs<std::string>("master");
  if (!name.has_value()) return "fp32";
  if (*name != "fp32" && *name != "split" && *name != "none") {
    values.WrongGiven("master", "fp32, split or none");
  }
  return *name;
}

void ReadMaster(DeepSpeedValues& values, DeepSpeedConfig& result) {
  const std::string own = "bf16.bf16_master_weights_and_grads";
  const std::string given = GivenMaster(values);
  if (given == "split") {
    result.config.master = MasterKind::kSplit;
    result.config.weight_rounding = WeightRounding::kNearestAway;
  }
  if (given == "none") {
    result.config.master = MasterKind::kNone;
    if (result.dtype == DType::kBF16) values.Resolve(own, "true");
  }
  if (!values.MaybeSwitch(own).value_or(false) || result.dtype != DType::kBF16) return;
  if (values.Given("master") != nullptr && given != "none") {
    values.Problem(own, absl::StrCat(values.Spelled(own), " is true, but ",
                                     values.Given("master")->name, " is \"", given, "\""));
  }
  result.config.master = MasterKind::kNone;
  values.Resolve(own, "true");
  values.Note(absl::StrCat(values.Spelled(own),
                           " is taken as bf16 weights without masters: updates are rounded "
                           "stochastically, gradients are added up in fp32"));
}

// A dtype as the file names it; nothing where it does not.
std::optional<DType> MaybeDType(DeepSpeedValues& values, const std::string& path) {
  const std::optional<std::string> name = values.MaybeChoice(path, {"fp32", "fp16", "bf16"});
  if (!name.has_value()) return std::nullopt;
  values.Resolve(path, Quoted(*name));
  return ParseDType(*name).value_or(DType::kF32);  // one of the three
}

}  // namespace

void ReadPrecision(DeepSpeedValues& values, const ConfigContext&, DeepSpeedConfig& result) {
  result.dtype = ReadDType(values);
  values.Resolve("fp16.enabled", result.dtype == DType::kF16 ? "true" : "false");
  values.Resolve("bf16.enabled", result.dtype == DType::kBF16 ? "true" : "false");
  ReadLossScale(values, result);
  ReadOverflowCheck(values, result);
  ReadMaster(values, result);
  const std::optional<DType> dtype = MaybeDType(values, "data_types.param_dtype");
  if (dtype.has_value() && *dtype != result.dtype) {
    values.Wrong("data_types.param_dtype", Name(*dtype),
                 absl::StrCat(Name(result.dtype), ", as fp16.enabled and bf16.enabled say"));
  }
}

void ReadGradients(DeepSpeedValues& values, const ConfigContext& context, DeepSpeedConfig& result) {
  Config& config = result.config;
  config.clip_norm = values.Number("gradient_clipping", 1, NotNegative, "0 (off) or positive");
  if (values.Find("gradient_clipping") == nullptr && values.Given("gradient_clipping") == nullptr) {
    values.Note("gradient_clipping is not given: it is 1, DeepSpeed's default since June 2026");
  }
  const std::string accumulation = "data_types.grad_accum_dtype";
  config.accumulation = MaybeDType(values, accumulation).value_or(DType::kF32);
  values.Resolve(accumulation, Quoted(Name(config.accumulation)));
  if (config.accumulation != DType::kF32 && config.accumulation != result.dtype) {
    values.Wrong(accumulation, Name(config.accumulation),
                 absl::StrCat("fp32, or the dtype of the weights, ", Name(result.dtype)));
  }
  config.communication = MaybeDType(values, "communication_data_type");
  const auto factor = [](double value) { return std::isfinite(value) && value >= 1e-6; };
  const double predivide =
      values.Number("gradient_predivide_factor", 1, factor, "finite and at least 1e-6");
  config.gradient_predivide_factor = predivide;
  if (values.Switch("prescale_gradients", false)) {
    // Divided by all ranks before they are sent.
    const auto ranks = static_cast<double>(context.world_size);
    if (predivide != 1 && predivide != ranks) {
      values.Problem("prescale_gradients",
                     absl::StrCat("prescale_gradients divides by the world size, ",
                                  context.world_size, ", but gradient_predivide_factor is ",
                                  ShortestText(predivide), "; keep one of them"));
    }
    config.gradient_predivide_factor = ranks;
  }
}

}  // namespace zero
