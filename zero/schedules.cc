#include "zero/schedules.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr int64_t kMostSteps = int64_t{1} << 53;  // steps are counted in doubles
constexpr double kMostCycles = 1e9;

// What is wrong with a schedule's fields, all of it.
class Fields {
 public:
  explicit Fields(const char* schedule) : schedule_(schedule) {}

  void Rate(const char* field, double value) {
    Check(std::isfinite(value) && value >= 0, field, value, "finite and not negative");
  }
  void Part(const char* field, double value) {
    Check(value >= 0 && value <= 1, field, value, "in [0, 1]");
  }
  void NotAbove(const char* low_field, double low, const char* high_field, double high) {
    Check(!(low > high), low_field, low, absl::StrCat("at most ", high_field, ", ", high));
  }
  void Momentum(const char* field, double value) {
    Check(value >= 0 && value < 1, field, value, "in [0, 1)");
  }
  void Finite(const char* field, double value) {
    Check(std::isfinite(value), field, value, "finite");
  }
  void Cycles(const char* field, double value) {
    Check(value >= -kMostCycles && value <= kMostCycles, field, value, "from -1e9 to 1e9");
  }
  void AtLeast(const char* field, int64_t value, int64_t least) {
    Check(value >= least, field, value, absl::StrCat("at least ", least));
  }
  // A run that ends in its warm-up would fall from the full rate to none at once.
  void TotalAndWarmUp(const char* total_field, int64_t total, const char* warmup_field,
                      int64_t warmup) {
    AtLeast(total_field, total, 1);
    Check(total <= kMostSteps, total_field, total, absl::StrCat("at most ", kMostSteps));
    AtLeast(warmup_field, warmup, 0);
    if (total >= 1) {
      Check(warmup <= total, warmup_field, warmup,
            absl::StrCat("at most ", total_field, ", ", total));
    }
  }

  absl::Status status() const {
    return wrong_.empty() ? absl::OkStatus()
                          : absl::InvalidArgumentError(absl::StrCat(schedule_, ": ", wrong_));
  }

 private:
  template <typename Value>
  void Check(bool right, const char* field, Value value, const std::string& wanted) {
    if (right) return;
    absl::StrAppend(&wrong_, wrong_.empty() ? "" : "; ", field, " is ", value, ": it must be ",
                    wanted);
  }

  const char* schedule_;
  std::string wrong_;
};

double IndexOf(int64_t count) { return static_cast<double>(std::max<int64_t>(0, count - 1)); }

// The value at s < warmup: a warm-up of one step is not spent at 0.
double Rising(double s, double warmup) { return warmup > 1 ? s / warmup : 1; }

absl::StatusOr<int64_t> WarmUpSteps(const char* schedule, const WarmUp& warmup,
                                    int64_t total_steps) {
  Fields fields(schedule);
  fields.TotalAndWarmUp("total_steps", total_steps, "warmup_steps", warmup.warmup_steps);
  fields.Part("warmup_ratio", warmup.warmup_ratio);
  ZERO_RETURN_IF_ERROR(fields.status());
  if (warmup.warmup_ratio == 0) return warmup.warmup_steps;
  if (warmup.warmup_steps > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(schedule, ": warmup_steps is ", warmup.warmup_steps, " and warmup_ratio is ",
                     warmup.warmup_ratio, ": only one of them may be given"));
  }
  const double steps = std::ceil(static_cast<double>(total_steps) * warmup.warmup_ratio);
  return std::min(total_steps, static_cast<int64_t>(steps));
}

// lr x s / warm-up, then lr x after(s, progress), where progress is the part of the steps after the
// warm-up that is done.
template <typename After>
absl::StatusOr<Schedule> WarmedUp(const char* name, double lr, const WarmUp& warmup,
                                  int64_t total_steps, After after) {
  Fields fields(name);
  fields.Rate("lr", lr);
  ZERO_RETURN_IF_ERROR(fields.status());
  ZERO_ASSIGN_OR_RETURN(const int64_t steps, WarmUpSteps(name, warmup, total_steps));
  const auto warm = static_cast<double>(steps);
  const auto rest = static_cast<double>(std::max<int64_t>(1, total_steps - steps));
  return Schedule([=](int64_t count) {
    const double s = IndexOf(count);
    if (s < warm) return lr * Rising(s, warm);
    return lr * std::max(0.0, after(s, (s - warm) / rest));
  });
}

// The rising part of DeepSpeed's schedules, from 0 to 1.
class DeepSpeedWarmUp {
 public:
  DeepSpeedWarmUp(int64_t steps, WarmUpType type)
      : steps_(static_cast<double>(std::max<int64_t>(2, steps))), full_(steps < 2), type_(type) {}

  double steps() const { return steps_; }
  double At(double s) const {
    if (full_) return 1;
    return type_ == WarmUpType::kLog ? (1 / std::log(steps_)) * std::log(s + 1) : s / steps_;
  }

 private:
  double steps_;
  bool full_;
  WarmUpType type_;
};

// Where in its cycle an update is.
class Cycle {
 public:
  explicit Cycle(const OneCycle& wanted)
      : first_(static_cast<double>(wanted.cycle_first_step_size)),
        second_(static_cast<double>(
            wanted.cycle_second_step_size.value_or(wanted.cycle_first_step_size))),
        first_stairs_(static_cast<double>(wanted.cycle_first_stair_count)),
        second_stairs_(static_cast<double>(
            wanted.cycle_second_stair_count.value_or(wanted.cycle_first_stair_count))) {}

  // Updates past the end of the cycle; 0 in it.
  double Past(double s) const { return std::max(0.0, s - (first_ + second_)); }

  // 0 at both ends, 1 where the halves meet.
  double Height(double s) const {
    const double total = first_ + second_;
    const double ratio = first_ / total;
    const double turns = 1 + s / total;
    const double x = turns - std::floor(turns);
    const double stairs = x <= ratio ? first_stairs_ : second_stairs_;
    if (stairs == 0) return x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
    const double step = std::fmod(s, total);
    const double stair =
        step <= first_ ? step * stairs / first_ : (total - step) * stairs / second_;
    return std::floor(stair) / stairs;
  }

 private:
  double first_;
  double second_;
  double first_stairs_;
  double second_stairs_;
};

absl::Status Validate(const OneCycle& wanted) {
  Fields fields("OneCycle");
  fields.Rate("cycle_min_lr", wanted.cycle_min_lr);
  fields.Rate("cycle_max_lr", wanted.cycle_max_lr);
  fields.NotAbove("cycle_min_lr", wanted.cycle_min_lr, "cycle_max_lr", wanted.cycle_max_lr);
  fields.AtLeast("cycle_first_step_size", wanted.cycle_first_step_size, 1);
  fields.AtLeast("cycle_second_step_size", wanted.cycle_second_step_size.value_or(0), 0);
  fields.AtLeast("cycle_first_stair_count", wanted.cycle_first_stair_count, 0);
  fields.AtLeast("cycle_second_stair_count", wanted.cycle_second_stair_count.value_or(0), 0);
  fields.AtLeast("decay_step_size", wanted.decay_step_size, 0);
  fields.Rate("decay_lr_rate", wanted.decay_lr_rate);
  fields.Momentum("cycle_min_mom", wanted.cycle_min_mom);
  fields.Momentum("cycle_max_mom", wanted.cycle_max_mom);
  fields.NotAbove("cycle_min_mom", wanted.cycle_min_mom, "cycle_max_mom", wanted.cycle_max_mom);
  fields.Finite("decay_mom_rate", wanted.decay_mom_rate);
  return fields.status();
}

}  // namespace

absl::StatusOr<Schedule> MakeSchedule(const ConstantSchedule& wanted) {
  Fields fields("constant");
  fields.Rate("lr", wanted.lr);
  fields.AtLeast("warmup_steps", wanted.warmup_steps, 0);
  ZERO_RETURN_IF_ERROR(fields.status());
  const auto warm = static_cast<double>(wanted.warmup_steps);
  return Schedule([lr = wanted.lr, warm](int64_t count) {
    const double s = IndexOf(count);
    return s < warm ? lr * Rising(s, warm) : lr;
  });
}

absl::StatusOr<Schedule> MakeSchedule(const StepSchedule& wanted) {
  Fields fields("StepLR");
  fields.Rate("lr", wanted.lr);
  fields.AtLeast("step_size", wanted.step_size, 1);
  fields.Rate("gamma", wanted.gamma);
  ZERO_RETURN_IF_ERROR(fields.status());
  return Schedule([wanted](int64_t count) {
    const double steps = std::floor(IndexOf(count) / static_cast<double>(wanted.step_size));
    return wanted.lr * std::pow(wanted.gamma, steps);
  });
}

absl::StatusOr<Schedule> MakeSchedule(const LinearSchedule& wanted) {
  ZERO_ASSIGN_OR_RETURN(const int64_t warmup,
                        WarmUpSteps("linear", wanted.warmup, wanted.total_steps));
  const auto total = static_cast<double>(wanted.total_steps);
  const auto rest = static_cast<double>(std::max<int64_t>(1, wanted.total_steps - warmup));
  return WarmedUp("linear", wanted.lr, wanted.warmup, wanted.total_steps,
                  [=](double s, double) { return (total - s) / rest; });
}

absl::StatusOr<Schedule> MakeSchedule(const CosineSchedule& wanted) {
  Fields fields("cosine");
  fields.Cycles("num_cycles", wanted.num_cycles);
  ZERO_RETURN_IF_ERROR(fields.status());
  return WarmedUp("cosine", wanted.lr, wanted.warmup, wanted.total_steps,
                  [cycles = wanted.num_cycles](double, double progress) {
                    return 0.5 * (1 + std::cos(kPi * cycles * 2 * progress));
                  });
}

absl::StatusOr<Schedule> MakeSchedule(const CosineRestartsSchedule& wanted) {
  Fields fields("cosine_with_restarts");
  fields.AtLeast("num_cycles", wanted.num_cycles, 1);
  ZERO_RETURN_IF_ERROR(fields.status());
  return WarmedUp("cosine_with_restarts", wanted.lr, wanted.warmup, wanted.total_steps,
                  [cycles = static_cast<double>(wanted.num_cycles)](double, double progress) {
                    if (progress >= 1) return 0.0;
                    return 0.5 * (1 + std::cos(kPi * std::fmod(cycles * progress, 1)));
                  });
}

absl::StatusOr<Schedule> MakeSchedule(const WarmupLr& wanted) {
  Fields fields("WarmupLR");
  fields.Rate("warmup_min_lr", wanted.warmup_min_lr);
  fields.Rate("warmup_max_lr", wanted.warmup_max_lr);
  fields.NotAbove("warmup_min_lr", wanted.warmup_min_lr, "warmup_max_lr", wanted.warmup_max_lr);
  fields.AtLeast("warmup_num_steps", wanted.warmup_num_steps, 0);
  ZERO_RETURN_IF_ERROR(fields.status());
  const DeepSpeedWarmUp warmup(wanted.warmup_num_steps, wanted.warmup_type);
  const double low = wanted.warmup_min_lr;
  const double rise = wanted.warmup_max_lr - low;
  return Schedule([=](int64_t count) {
    const double s = IndexOf(count);
    return low + rise * (s < warmup.steps() ? warmup.At(s) : 1);
  });
}

absl::StatusOr<Schedule> MakeSchedule(const WarmupDecayLr& wanted) {
  Fields fields("WarmupDecayLR");
  fields.Rate("warmup_min_lr", wanted.warmup_min_lr);
  fields.Rate("warmup_max_lr", wanted.warmup_max_lr);
  fields.NotAbove("warmup_min_lr", wanted.warmup_min_lr, "warmup_max_lr", wanted.warmup_max_lr);
  fields.TotalAndWarmUp("total_num_steps", wanted.total_num_steps, "warmup_num_steps",
                        wanted.warmup_num_steps);
  ZERO_RETURN_IF_ERROR(fields.status());
  const DeepSpeedWarmUp warmup(wanted.warmup_num_steps, wanted.warmup_type);
  const double low = wanted.warmup_min_lr;
  const double rise = wanted.warmup_max_lr - low;
  const auto total = static_cast<double>(wanted.total_num_steps);
  return Schedule([=](int64_t count) {
    const double s = IndexOf(count);
    if (s < std::min(total, warmup.steps())) return low + rise * warmup.At(s);
    return low + rise * std::max(0.0, (total - s) / std::max(1.0, total - warmup.steps()));
  });
}

absl::StatusOr<Schedule> MakeSchedule(const WarmupCosineLr& wanted) {
  Fields fields("WarmupCosineLR");
  fields.Rate("lr", wanted.lr);
  fields.Part("warmup_min_ratio", wanted.warmup_min_ratio);
  fields.Part("cos_min_ratio", wanted.cos_min_ratio);
  fields.TotalAndWarmUp("total_num_steps", wanted.total_num_steps, "warmup_num_steps",
                        wanted.warmup_num_steps);
  ZERO_RETURN_IF_ERROR(fields.status());
  const DeepSpeedWarmUp warmup(wanted.warmup_num_steps, wanted.warmup_type);
  const double lr = wanted.lr;
  const double start = wanted.warmup_min_ratio;
  const double end = wanted.cos_min_ratio;
  const auto total = static_cast<double>(wanted.total_num_steps);
  return Schedule([=](int64_t count) {
    const double s = IndexOf(count);
    if (s < std::min(total, warmup.steps())) return lr * (start + warmup.At(s) * (1 - start));
    const double done = s - warmup.steps() + 1;
    const double progress =
        s < total ? std::min(1.0, done / std::max(1.0, total - warmup.steps())) : 1;
    return lr * (end + (1 - end) * ((1 + std::cos(kPi * progress)) / 2));
  });
}

absl::StatusOr<Schedule> MakeSchedule(const OneCycle& wanted) {
  ZERO_RETURN_IF_ERROR(Validate(wanted));
  return Schedule([wanted, cycle = Cycle(wanted)](int64_t count) {
    const double s = IndexOf(count);
    const double past = cycle.Past(s);
    if (past == 0) {
      return wanted.cycle_min_lr + (wanted.cycle_max_lr - wanted.cycle_min_lr) * cycle.Height(s);
    }
    if (wanted.decay_step_size == 0) return wanted.cycle_min_lr;
    const double intervals = past / static_cast<double>(wanted.decay_step_size);
    return wanted.cycle_min_lr / (1 + wanted.decay_lr_rate * intervals);
  });
}

absl::StatusOr<Schedule> MakeMomentumSchedule(const OneCycle& wanted) {
  ZERO_RETURN_IF_ERROR(Validate(wanted));
  return Schedule([wanted, cycle = Cycle(wanted)](int64_t count) {
    const double s = IndexOf(count);
    const double past = cycle.Past(s);
    if (past == 0) {
      return wanted.cycle_max_mom - (wanted.cycle_max_mom - wanted.cycle_min_mom) * cycle.Height(s);
    }
    if (wanted.decay_step_size == 0) return wanted.cycle_max_mom;
    const double intervals = past / static_cast<double>(wanted.decay_step_size);
    return wanted.cycle_max_mom * (1 + wanted.decay_mom_rate * intervals);
  });
}

absl::StatusOr<Schedule> MakeSchedule(const LrRangeTest& wanted) {
  Fields fields("LRRangeTest");
  fields.Rate("lr_range_test_min_lr", wanted.lr_range_test_min_lr);
  fields.AtLeast("lr_range_test_step_size", wanted.lr_range_test_step_size, 1);
  fields.Rate("lr_range_test_step_rate", wanted.lr_range_test_step_rate);
  ZERO_RETURN_IF_ERROR(fields.status());
  return Schedule([wanted](int64_t count) {
    const double intervals = IndexOf(count) / static_cast<double>(wanted.lr_range_test_step_size);
    return wanted.lr_range_test_min_lr *
           (1 + wanted.lr_range_test_step_rate *
                    (wanted.lr_range_test_staircase ? std::floor(intervals) : intervals));
  });
}

}  // namespace zero
