#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
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

std::vector<std::string> Types() {
  return {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest"};
}

std::string Path(const char* name) { return absl::StrCat("scheduler.params.", name); }

// The parameters that the types share.
class Parameters {
 public:
  Parameters(DeepSpeedValues& values, const ConfigContext& context, double rate)
      : values_(values), context_(context), rate_(rate) {}

  double Rate(const char* name, double otherwise) {
    return values_.Number(Path(name), otherwise, NotNegative, "at least 0");
  }
  double PeakRate() { return peak_ = Rate("warmup_max_lr", rate_); }
  double peak() const { return peak_; }
  double Ratio(const char* name, double otherwise) {
    return values_.Number(Path(name), otherwise, Part, "from 0 to 1");
  }
  int64_t Steps(const char* name, int64_t otherwise, int64_t least) {
    return values_.Count(Path(name), otherwise, least, kMany);
  }
  // "auto" is what the command line's default is; left out is DeepSpeed's.
  int64_t WarmUpSteps() {
    const bool is_auto = values_.IsAuto(Path("warmup_num_steps"));
    return warmup_steps_ = Steps("warmup_num_steps", is_auto ? 0 : 1000, 0);
  }
  int64_t warmup_steps() const { return warmup_steps_; }
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
    return total_steps_ = Steps("total_num_steps", context_.total_steps.value_or(0), 0);
  }
  int64_t total_steps() const { return total_steps_; }

 private:
  DeepSpeedValues& values_;
  const ConfigContext& context_;
  const double rate_;
  double peak_ = 0;
  int64_t warmup_steps_ = 0;  // 0: the type has none
  int64_t total_steps_ = 0;   // likewise
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

// The first update whose beta1 is not in [0, 1); nothing where none is. In the cycle all are, and
// after it beta1 goes one way.
std::optional<int64_t> FirstOutside(const Schedule& momentum) {
  int64_t inside = 1;
  int64_t outside = int64_t{1} << 62;
  if (Decay(momentum(outside))) return std::nullopt;
  while (outside - inside > 1) {
    const int64_t middle = inside + (outside - inside) / 2;
    (Decay(momentum(middle)) ? inside : outside) = middle;
  }
  return outside;
}

// beta1 is not held at the ends of its range: at 1 the weights would stand still.
void CheckMomentum(DeepSpeedValues& values, const ConfigContext& context, const OneCycle& cycle,
                   const Schedule& momentum) {
  const std::optional<int64_t> first = FirstOutside(momentum);
  if (!first.has_value()) return;
  const std::string path = Path("decay_mom_rate");
  const std::string text =
      absl::StrCat(path, " is ", ShortestText(cycle.decay_mom_rate), ", which takes beta1, ",
                   "after the cycle, out of [0, 1) at update ", *first);
  if (!context.total_steps.has_value()) {
    values.Note(text + ", which is refused when it comes");
  } else if (*first <= *context.total_steps) {
    values.Problem(path, absl::StrCat(text, " of ", *context.total_steps));
  }
}

// One of the caller's betas, in whose place OneCycle puts its own.
void RefuseGivenBeta(DeepSpeedValues& values, const char* name, const std::string& instead) {
  const CallerValue* given = values.Given(absl::StrCat("optimizer.params.", name));
  const double* beta = given == nullptr ? nullptr : std::get_if<double>(&given->value);
  if (beta == nullptr) return;
  values.Problem(
      kType, absl::StrCat("OneCycle ", instead, ", but ", given->name, " is ", ShortestText(*beta),
                          "; without it, or with ", Path("cycle_momentum"), " false, they agree"));
}

// OneCycle's betas in place of the optimizer's.
void ReplaceBetas(DeepSpeedValues& values, const Schedule& momentum, Config& config) {
  const std::string before = BetasText(config);
  RefuseGivenBeta(values, "beta1", "drives beta1");
  if (config.beta2 != kOneCycleBeta2) {
    RefuseGivenBeta(values, "beta2", absl::StrCat("sets beta2 to ", ShortestText(kOneCycleBeta2)));
  }
  config.beta1 = momentum(1);
  config.beta2 = kOneCycleBeta2;
  const std::string betas = "optimizer.params.betas";
  values.Resolve(betas, BetasText(config));
  values.Note(absl::StrCat(betas, " is ", BetasText(config), ", not ", before,
                           ": OneCycle drives beta1 from there, and sets beta2, unless ",
                           Path("cycle_momentum"), " is false"));
}

absl::StatusOr<Schedule> ReadCycle(DeepSpeedValues& values, Parameters& parameters,
                                   const ConfigContext& context, Config& config) {
  const OneCycle cycle = ReadOneCycle(values, parameters);
  if (values.Switch(Path("cycle_momentum"), true)) {
    if (config.optimizer == OptimizerKind::kSgd) {
      values.Note("scheduler.params.cycle_momentum is ignored: SGD has no betas to cycle");
    } else {
      absl::StatusOr<Schedule> momentum = MakeMomentumSchedule(cycle);
      if (!momentum.ok()) return momentum;
      CheckMomentum(values, context, cycle, *momentum);
      ReplaceBetas(values, *momentum, config);
      config.beta1_schedule = *std::move(momentum);
    }
  }
  return MakeSchedule(cycle);
}

absl::StatusOr<Schedule> ReadType(const std::string& type, DeepSpeedValues& values,
                                  Parameters& parameters, const ConfigContext& context,
                                  Config& config) {
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
  if (type == "OneCycle") return ReadCycle(values, parameters, context, config);
  if (type == "LRRangeTest") {
    LrRangeTest wanted;
    wanted.lr_range_test_min_lr = parameters.Rate("lr_range_test_min_lr", 1e-3);
    wanted.lr_range_test_step_size = parameters.Steps("lr_range_test_step_size", 2000, 1);
    wanted.lr_range_test_step_rate = parameters.Rate("lr_range_test_step_rate", 1);
    wanted.lr_range_test_staircase = values.Switch(Path("lr_range_test_staircase"), false);
    return MakeSchedule(wanted);
  }
  return absl::InternalError(absl::StrCat("type ", type, " has no parameters here"));
}

// What is right, but does not fit the run: as in DeepSpeed it is done, and here it is told.
void NoteLengths(DeepSpeedValues& values, const ConfigContext& context, const std::string& type,
                 const Parameters& parameters) {
  if (!context.total_steps.has_value()) return;
  const int64_t run = *context.total_steps;
  if (parameters.warmup_steps() > run) {
    values.Note(absl::StrCat(Path("warmup_num_steps"), " is ", parameters.warmup_steps(),
                             ": the run ends after ", run,
                             " steps, before its rate is the highest"));
  }
  if (parameters.total_steps() > 0 && parameters.total_steps() < run) {
    values.Note(absl::StrCat(Path("total_num_steps"), " is ", parameters.total_steps(),
                             ", but the run has ", run,
                             " steps: from there on the rate stays at the lowest of ", type));
  }
}

// The schedule's own peak against the optimizer's rate, which has no effect beside it.
void CheckPeak(DeepSpeedValues& values, const std::string& type, double schedule_rate,
               double optimizer_rate) {
  const std::string own = "optimizer.params.lr";
  const bool warms_up = type == "WarmupLR" || type == "WarmupDecayLR";
  if (type == "WarmupCosineLR" || (warms_up && schedule_rate == optimizer_rate)) return;
  const std::string peak =
      warms_up ? absl::StrCat(Path("warmup_max_lr"), " is ", ShortestText(schedule_rate))
               : absl::StrCat(type, " has rates of its own");
  const CallerValue* given = values.Given(own);
  if (given != nullptr) {
    values.Problem(kType, absl::StrCat(peak, ", but ", given->name, " is ",
                                       ShortestText(optimizer_rate), "; leave one out"));
  } else if (values.Find(own) != nullptr && !values.IsAuto(own)) {
    values.Note(absl::StrCat(own, ", ", ShortestText(optimizer_rate), ", has no effect: ", peak));
  }
}

// Where the file leaves the type open: whether the caller's schedule is one of its own, which then
// stays the caller's. DeepSpeed's parameters have no meaning for it.
bool LeftToCaller(DeepSpeedValues& values) {
  if (values.Find(kType) != nullptr && !values.IsAuto(kType)) return false;
  const std::optional<std::string> name = values.GivenAs<std::string>(kType);
  if (!name.has_value()) return false;
  const std::vector<std::string> types = Types();
  const bool known = std::any_of(types.begin(), types.end(), [&](const std::string& type) {
    return absl::EqualsIgnoreCase(type, *name);
  });
  if (known) return false;
  const std::string& flag = values.Given(kType)->name;
  values.Note(absl::StrCat(kType, " is left to ", flag, ", ", Quoted(*name)));
  for (const std::string& key : KeysOfSection("scheduler.params")) {
    const std::string path = Path(key.c_str());
    if (FindDeepSpeedKey(path)->fate != KeyFate::kHonoured) continue;
    if (values.Find(path) == nullptr || values.IsAuto(path)) continue;
    values.Problem(path, absl::StrCat(values.Spelled(path), " is no parameter of ", Quoted(*name),
                                      ", which ", flag, " is"));
  }
  return true;
}

}  // namespace

void ReadScheduler(DeepSpeedValues& values, const ConfigContext& context, DeepSpeedConfig& result) {
  if (values.Find("scheduler") == nullptr) return;
  if (LeftToCaller(values)) return;
  const bool automatic = values.IsAuto(kType);
  if ((automatic || values.Find(kType) == nullptr) && values.Given(kType) == nullptr) {
    values.Problem(
        automatic ? kType : "scheduler",
        absl::StrCat(kType, automatic ? " is \"auto\", and nothing says which" : " is missing",
                     "; it must be WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle or "
                     "LRRangeTest"));
    return;
  }
  const std::optional<std::string> type = values.MaybeChoice(kType, Types());
  if (!type.has_value()) return;
  values.Resolve(kType, Quoted(*type));
  result.scheduler = *type;
  Parameters parameters(values, context, result.config.learning_rate);
  const size_t problems = values.problems();
  absl::StatusOr<Schedule> schedule = ReadType(*type, values, parameters, context, result.config);
  if (schedule.ok()) {
    CheckPeak(values, *type, parameters.peak(), result.config.learning_rate);
    NoteLengths(values, context, *type, parameters);
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
