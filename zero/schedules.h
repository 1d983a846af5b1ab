// Schedules of PyTorch, transformers and DeepSpeed as functions of the applied-step count.
//
// The index of a schedule is s = count - 1: the number of updates applied before the one that asks,
// so the first update has s = 0 and a skipped step moves nothing. It is the index that a PyTorch
// scheduler has when optimizer.step() is followed by scheduler.step(). DeepSpeed's OneCycle and
// LRRangeTest count the same way; its WarmupLR, WarmupDecayLR and WarmupCosineLR spend an update at
// the lowest rate, or at 0, before they begin, and are one update behind from then on.
//
// Fields have the names that the originals have. Formulas are in double, in the originals' order of
// operations; what they round, this rounds. A warm-up of 0 or 1 means the full rate from the first
// update on, where the originals divide by zero or spend the first update at the lowest rate;
// every other value is theirs.
//
// Each MakeSchedule returns kInvalidArgument naming schedule, field and value: rates must be finite
// and not negative, a minimum not above its maximum, counts of steps in range, a run at most 2^53
// steps long (a double counts no further), and a warm-up no longer than the whole.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "zero/config.h"

namespace zero {

// transformers' warm-up, a straight line from 0: s / warmup_steps for s < warmup_steps.
struct WarmUp {
  int64_t warmup_steps = 0;
  // In place of warmup_steps, as a part of total_steps, rounded up to whole steps. In [0, 1].
  double warmup_ratio = 0;
};

// lr, after `warmup_steps`.
struct ConstantSchedule {
  double lr = 1e-3;
  int64_t warmup_steps = 0;
};

// torch.optim.lr_scheduler.StepLR: lr x gamma^floor(s / step_size).
struct StepSchedule {
  double lr = 1e-3;
  int64_t step_size = 1;
  double gamma = 0.1;
};

// lr x (total_steps - s) / (total_steps - warm-up) after the warm-up, 0 from total_steps on.
struct LinearSchedule {
  double lr = 1e-3;
  int64_t total_steps = 0;
  WarmUp warmup;
};

// lr x (1 + cos(2 pi num_cycles p)) / 2 after the warm-up, with p the part of the remaining steps
// that is done. Not held at total_steps: there p goes on, and the rate rises again. num_cycles is
// from -1e9 to 1e9, so that the angle is finite.
struct CosineSchedule {
  double lr = 1e-3;
  int64_t total_steps = 0;
  WarmUp warmup;
  double num_cycles = 0.5;
};

// lr x (1 + cos(pi (num_cycles p mod 1))) / 2 after the warm-up, 0 from total_steps on.
struct CosineRestartsSchedule {
  double lr = 1e-3;
  int64_t total_steps = 0;
  WarmUp warmup;
  int64_t num_cycles = 1;
};

// DeepSpeed's warm-up: ln(s + 1) / ln(W) or s / W for s < W = warmup_num_steps.
enum class WarmUpType : uint8_t { kLog, kLinear };

// DeepSpeed's WarmupLR: from warmup_min_lr to warmup_max_lr, and there it stays. (In DeepSpeed the
// default of warmup_max_lr is the optimizer's rate.)
struct WarmupLr {
  double warmup_min_lr = 0;
  double warmup_max_lr = 1e-3;
  int64_t warmup_num_steps = 1000;
  WarmUpType warmup_type = WarmUpType::kLog;
};

// DeepSpeed's WarmupDecayLR: then down in a line to warmup_min_lr, reached at total_num_steps.
struct WarmupDecayLr {
  int64_t total_num_steps = 0;
  double warmup_min_lr = 0;
  double warmup_max_lr = 1e-3;
  int64_t warmup_num_steps = 1000;
  WarmUpType warmup_type = WarmUpType::kLog;
};

// DeepSpeed's WarmupCosineLR: parts of lr, from warmup_min_ratio to 1, then along half a cosine to
// cos_min_ratio, reached at total_num_steps - 1.
struct WarmupCosineLr {
  double lr = 1e-3;
  int64_t total_num_steps = 0;
  double warmup_min_ratio = 0;
  int64_t warmup_num_steps = 1000;
  double cos_min_ratio = 1e-4;
  WarmUpType warmup_type = WarmUpType::kLog;
};

// DeepSpeed's OneCycle: from cycle_min_lr up to cycle_max_lr and back; then, n updates past the
// cycle, cycle_min_lr / (1 + decay_lr_rate x n / decay_step_size). beta1 goes the other way, from
// cycle_max_mom down to cycle_min_mom and back, then to cycle_max_mom x (1 + decay_mom_rate x n /
// decay_step_size), which is not held in [0, 1): an engine refuses the step in which it leaves. (In
// DeepSpeed the first update has cycle_min_mom.)
struct OneCycle {
  double cycle_min_lr = 0;
  double cycle_max_lr = 0;
  int64_t cycle_first_step_size = 2000;
  std::optional<int64_t> cycle_second_step_size;  // empty: as the first
  // In how many stairs each half is climbed; 0: at every update.
  int64_t cycle_first_stair_count = 0;
  std::optional<int64_t> cycle_second_stair_count;  // empty: as the first
  int64_t decay_step_size = 0;                      // 0: no decay
  double decay_lr_rate = 0;
  double cycle_min_mom = 0.8;
  double cycle_max_mom = 0.9;
  double decay_mom_rate = 0;
};
// What DeepSpeed sets beta2 to while OneCycle drives beta1.
inline constexpr double kOneCycleBeta2 = 0.99;

// DeepSpeed's LRRangeTest: lr_range_test_min_lr x (1 + lr_range_test_step_rate x s /
// lr_range_test_step_size), the quotient rounded down if lr_range_test_staircase.
struct LrRangeTest {
  double lr_range_test_min_lr = 1e-3;
  int64_t lr_range_test_step_size = 2000;
  double lr_range_test_step_rate = 1;
  bool lr_range_test_staircase = false;
};

absl::StatusOr<Schedule> MakeSchedule(const ConstantSchedule& wanted);
absl::StatusOr<Schedule> MakeSchedule(const StepSchedule& wanted);
absl::StatusOr<Schedule> MakeSchedule(const LinearSchedule& wanted);
absl::StatusOr<Schedule> MakeSchedule(const CosineSchedule& wanted);
absl::StatusOr<Schedule> MakeSchedule(const CosineRestartsSchedule& wanted);
absl::StatusOr<Schedule> MakeSchedule(const WarmupLr& wanted);
absl::StatusOr<Schedule> MakeSchedule(const WarmupDecayLr& wanted);
absl::StatusOr<Schedule> MakeSchedule(const WarmupCosineLr& wanted);
absl::StatusOr<Schedule> MakeSchedule(const OneCycle& wanted);
absl::StatusOr<Schedule> MakeSchedule(const LrRangeTest& wanted);
// For Config::beta1_schedule.
absl::StatusOr<Schedule> MakeMomentumSchedule(const OneCycle& wanted);

}  // namespace zero
