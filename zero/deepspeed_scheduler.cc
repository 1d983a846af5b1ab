#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "zero/deepspeed_sections.h"
#include "zero/schedules.h"

namespace zero {
namespace {

constexpr int64_t kMany = std::numeric_limits<int64_t>::max();
constexpr char kType[] = "scheduler.type";

bool Finite(double value) { return std::isfinite(value); }
bool NotNegative(double value) { return value >= 0; }
bool Part(double value) { return value >= 0 && value <= 1; }
bool Decay(double value) { return value >= 0 && value < 1; }

std::string Path(const char* name) { return absl::StrCat("scheduler.params.", name); }

// The parameters that the types share.
class Parameters {
 public:
  Parameters(DeepSpeedValues& values, const ConfigContext& context, double rate)
      : values_(values), context_(context), rate_(rate) {}

  double Rate(const char* name, double otherwise) {
    return values_.Number(Path(name), otherwise, NotNegative, "at least 0");
  }
  double PeakRate() { return Rate("warmup_max_lr", rate_); }
  double Ratio(const char* name, double otherwise) {
    return values_.Number(Path(name), otherwise, Part, "from 0 to 1");
  }
  int64_t Steps(const char* name, int64_t otherwise, int64_t least) {
    return values_.Count(Path(name), otherwise, least, kMany);
  }
  // "auto" is what the command line's default is; left out is DeepSpeed's.
  int64_t WarmUpSteps() {
    const bool is_auto = values_.IsAuto(Path("warmup_num_steps"));
    return Steps("warmup_num_steps", is_auto ? 0 : 1000, 0);
  }
  WarmUpType WarmUpKind() {
    const std::string kind = values_.Choice(Path("warmup_type"), "log", {"log", "linear"});
    return kind == "log" ? WarmUpType::kLog : WarmUpType::kLinear;
  }
  int64_t TotalSteps() {
    const std::string path = Path("total_num_steps");
    const bool in_file = values_.Find(path) != nullptr && !values_.IsAuto(path);
    if (!in_file && !context_.total_steps.has_value() && values_.Given(path) == nullptr) {
      values_.Problem(path,
                      absl::StrCat(path, values_.IsAuto(path) ? " is \"auto\"" : " is missing",
                                   ", and nothing says how many steps the run has; it must be a "
                                   "whole number"));
    }
    return Steps("total_num_steps", context_.total_steps.value_or(0), 0);
  }

 private:
  DeepSpeedValues& values_;
  const ConfigContext& context_;
  const double rate_;
};

OneCycle ReadOneCycle(DeepSpeedValues& values, Parameters& parameters) {
  OneCycle cycle;
  for (const char* name : {"cycle_min_lr", "cycle_max_lr"}) {
    if (values.Find(Path(name)) != nullptr && !values.IsAuto(Path(name))) continue;
    values.Problem(kType, absl::StrCat(Path(name), " is missing; OneCycle needs a rate there"));
  }
  cycle.cycle_min_lr = parameters.Rate("cycle_min_lr", 0);
  cycle.cycle_max_lr = parameters.Rate("cycle_max_lr", 0);
  cycle.cycle_first_step_size = parameters.Steps("cycle_first_step_size", 2000, 1);
  cycle.cycle_second_step_size =
      parameters.Steps("cycle_second_step_size", cycle.cycle_first_step_size, 1);
  cycle.cycle_first_stair_count = parameters.Steps("cycle_first_stair_count", 0, 0);
  cycle.cycle_second_stair_count =
      parameters.Steps("cycle_second_stair_count", cycle.cycle_first_stair_count, 0);
  cycle.decay_step_size = parameters.Steps("decay_step_size", 0, 0);
  cycle.decay_lr_rate = parameters.Rate("decay_lr_rate", 0);
  cycle.cycle_min_mom = values.Number(Path("cycle_min_mom"), 0.8, Decay, "at least 0 and below 1");
  cycle.cycle_max_mom = values.Number(Path("cycle_max_mom"), 0.9, Decay, "at least 0 and below 1");
  cycle.decay_mom_rate = values.Number(Path("decay_mom_rate"), 0, Finite, "finite");
  return cycle;
}

absl::StatusOr<Schedule> ReadCycle(DeepSpeedValues& values, Parameters& parameters,
                                   Config& config) {
  const OneCycle cycle = ReadOneCycle(values, parameters);
  if (values.Switch(Path("cycle_momentum"), true)) {
    if (config.optimizer == OptimizerKind::kSgd) {
      values.Note("scheduler.params.cycle_momentum is ignored: SGD has no betas to cycle");
    } else {
      absl::StatusOr<Schedule> momentum = MakeMomentumSchedule(cycle);
      if (!momentum.ok()) return momentum;
      config.beta1_schedule = *std::move(momentum);
      config.beta2 = kOneCycleBeta2;
    }
  }
  return MakeSchedule(cycle);
}

absl::StatusOr<Schedule> ReadType(const std::string& type, DeepSpeedValues& values,
                                  Parameters& parameters, Config& config) {
  if (type == "WarmupLR") {
    WarmupLr wanted;
    wanted.warmup_min_lr = parameters.Rate("warmup_min_lr", 0);
    wanted.warmup_max_lr = parameters.PeakRate();
    wanted.warmup_num_steps = parameters.WarmUpSteps();
    wanted.warmup_type = parameters.WarmUpKind();
    return MakeSchedule(wanted);
  }
  if (type == "WarmupDecayLR") {
    WarmupDecayLr wanted;
    wanted.total_num_steps = parameters.TotalSteps();
    wanted.warmup_min_lr = parameters.Rate("warmup_min_lr", 0);
    wanted.warmup_max_lr = parameters.PeakRate();
    wanted.warmup_num_steps = parameters.WarmUpSteps();
    wanted.warmup_type = parameters.WarmUpKind();
    return MakeSchedule(wanted);
  }
  if (type == "WarmupCosineLR") {
    WarmupCosineLr wanted;
    wanted.lr = config.learning_rate;
    wanted.total_num_steps = parameters.TotalSteps();
    wanted.warmup_min_ratio = parameters.Ratio("warmup_min_ratio", 0);
    wanted.warmup_num_steps = parameters.WarmUpSteps();
    wanted.cos_min_ratio = parameters.Ratio("cos_min_ratio", 1e-4);
    wanted.warmup_type = parameters.WarmUpKind();
    return MakeSchedule(wanted);
  }
  if (type == "OneCycle") return ReadCycle(values, parameters, config);
  LrRangeTest wanted;
  wanted.lr_range_test_min_lr = parameters.Rate("lr_range_test_min_lr", 1e-3);
  wanted.lr_range_test_step_size = parameters.Steps("lr_range_test_step_size", 2000, 1);
  wanted.lr_range_test_step_rate = parameters.Rate("lr_range_test_step_rate", 1);
  wanted.lr_range_test_staircase = values.Switch(Path("lr_range_test_staircase"), false);
  return MakeSchedule(wanted);
}

}  // namespace

void ReadScheduler(DeepSpeedValues& values, const ConfigContext& context, DeepSpeedConfig& result) {
  if (values.Find("scheduler") == nullptr) return;
  if (values.Find(kType) == nullptr) {
    values.Problem("scheduler",
                   "scheduler.type is missing; it must be WarmupLR, WarmupDecayLR, "
                   "WarmupCosineLR, OneCycle or LRRangeTest");
    return;
  }
  const std::optional<std::string> type = values.MaybeChoice(
      kType, {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest"});
  if (!type.has_value()) return;
  values.Resolve(kType, Quoted(*type));
  result.scheduler = *type;
  Parameters parameters(values, context, result.config.learning_rate);
  const size_t problems = values.problems();
  absl::StatusOr<Schedule> schedule = ReadType(*type, values, parameters, result.config);
  if (schedule.ok()) {
    result.config.schedule = *std::move(schedule);
  } else if (values.problems() == problems) {
    values.Problem(kType, absl::StrCat("scheduler: ", schedule.status().message()));
  }
  const CallerValue* warmup = values.Given(Path("warmup_num_steps"));
  if (warmup != nullptr && (*type == "OneCycle" || *type == "LRRangeTest")) {
    values.Problem(kType, absl::StrCat(kType, " is ", Quoted(*type), ", which has no warm-up, but ",
                                       warmup->name, " is given"));
  }
  values.RefuseUnread("scheduler.params", *type);
}

}  // namespace zero
