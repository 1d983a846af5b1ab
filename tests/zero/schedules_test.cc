#include "zero/schedules.h"

#include <cmath>
#include <limits>

#include "tests/catch.h"

namespace zero::test {
namespace {

// The values of the first `count` updates.
template <typename Wanted>
std::vector<double> Values(const Wanted& wanted, int64_t count) {
  const absl::StatusOr<Schedule> schedule = MakeSchedule(wanted);
  REQUIRE_OK(schedule.status());
  std::vector<double> values;
  for (int64_t c = 1; c <= count; ++c) values.push_back((*schedule)(c));
  return values;
}

void CheckNear(const std::vector<double>& values, const std::vector<double>& expected,
               double scale) {
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    CHECK(values[i] == Approx(scale * expected[i]).epsilon(0).margin(1e-5 * scale));
  }
}

template <typename Wanted>
std::string ErrorOf(const Wanted& wanted) {
  const absl::Status status = MakeSchedule(wanted).status();
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST_CASE("Schedules: DeepSpeed's warm-ups have the values worked out by hand", "[zero]") {
  WarmupLr warmup;
  warmup.warmup_num_steps = 10;
  CheckNear(Values(warmup, 12),
            {0, .301030, .477121, .602060, .698970, .778151, .845098, .903090, .954243, 1, 1, 1},
            1e-3);
  warmup.warmup_type = WarmUpType::kLinear;
  CheckNear(Values(warmup, 11), {0, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1}, 1e-3);

  WarmupDecayLr decay;
  decay.warmup_num_steps = 4;
  decay.total_num_steps = 20;
  std::vector<double> expected = {0, .5, .79248, 1};
  for (int i = 4; i <= 23; ++i) expected.push_back(std::max(0.0, (20 - i) / 16.0));
  CheckNear(Values(decay, 24), expected, 1e-3);
  // The warm-up is all there is.
  decay.warmup_num_steps = decay.total_num_steps = 10;
  const std::vector<double> values = Values(decay, 30);
  CHECK(values[9] == Approx(1e-3));
  for (size_t i = 10; i < 30; ++i) CHECK(values[i] == 0);

  WarmupCosineLr cosine;
  cosine.warmup_num_steps = 4;
  cosine.total_num_steps = 12;
  CheckNear(Values(cosine, 14),
            {0, .5, .79248, 1, .96194, .85357, .69137, .50005, .30873, .14653, .03816, .0001, .0001,
             .0001},
            1e-3);
}

TEST_CASE("Schedules: a warm-up of 0 or 1 steps gives the full rate from the first update",
          "[zero]") {
  for (const int64_t steps : {0, 1}) {
    for (const WarmUpType type : {WarmUpType::kLog, WarmUpType::kLinear}) {
      CAPTURE(steps);
      WarmupLr warmup;
      warmup.warmup_num_steps = steps;
      warmup.warmup_type = type;
      CHECK(Values(warmup, 4) == std::vector<double>(4, 1e-3));
      WarmupDecayLr decay;
      decay.total_num_steps = 6;
      decay.warmup_num_steps = steps;
      decay.warmup_type = type;
      CheckNear(Values(decay, 7), {1, 1, 1, .75, .5, .25, 0}, 1e-3);
      WarmupCosineLr cosine;
      cosine.total_num_steps = 6;
      cosine.warmup_num_steps = steps;
      cosine.warmup_type = type;
      CHECK(Values(cosine, 2) == std::vector<double>(2, 1e-3));
    }
    ConstantSchedule constant;
    constant.warmup_steps = steps;
    CHECK(Values(constant, 3) == std::vector<double>(3, 1e-3));
    LinearSchedule linear;
    linear.total_steps = 4 + steps;
    linear.warmup.warmup_steps = steps;
    CHECK(Values(linear, 1).front() == 1e-3);
    CHECK(Values(linear, 6).back() == 0);
    CosineSchedule cosine;
    cosine.total_steps = 4;
    cosine.warmup.warmup_steps = steps;
    CHECK(Values(cosine, 1).front() == 1e-3);
    CosineRestartsSchedule restarts;
    restarts.total_steps = 4;
    restarts.num_cycles = 2;
    restarts.warmup.warmup_steps = steps;
    CHECK(Values(restarts, 1).front() == 1e-3);
  }
}

TEST_CASE("Schedules: no length of run and warm-up gives a rate that is not a number", "[zero]") {
  for (int64_t total = 1; total <= 6; ++total) {
    for (int64_t warmup = 0; warmup <= total; ++warmup) {
      for (const WarmUpType type : {WarmUpType::kLog, WarmUpType::kLinear}) {
        WarmupDecayLr decay{total, 0, 1, warmup, type};
        WarmupCosineLr cosine{1, total, 0, warmup, 0.25, type};
        LinearSchedule linear{1, total, {warmup, 0}};
        CosineSchedule half{1, total, {warmup, 0}, 0.5};
        CosineRestartsSchedule restarts{1, total, {warmup, 0}, 3};
        CAPTURE(total, warmup);
        for (const std::vector<double>& values :
             {Values(decay, 12), Values(cosine, 12), Values(linear, 12), Values(half, 12),
              Values(restarts, 12)}) {
          for (const double value : values) CHECK((value >= 0 && value <= 1));
        }
        // At and past the end.
        CHECK(Values(decay, total + 1).back() == 0);
        CHECK(Values(cosine, total + 1).back() == Approx(0.25));
        if (warmup < total) CHECK(Values(linear, total + 1).back() == 0);
      }
    }
  }
}

TEST_CASE("Schedules: a part of the run as warm-up is rounded up to whole steps", "[zero]") {
  LinearSchedule linear{1, 20, {0, 0.21}};
  const std::vector<double> values = Values(linear, 20);
  CHECK(values[4] == 0.8);
  CHECK(values[5] == 1);
  linear.warmup.warmup_ratio = 1;
  CHECK(Values(linear, 20).back() == 0.95);
}

TEST_CASE("Schedules: the longest run and the most cycles give rates from 0 to lr", "[zero]") {
  const int64_t total = int64_t{1} << 53;
  for (const double ratio : {0.0, 0.5, 1.0}) {
    const absl::StatusOr<Schedule> cosine = MakeSchedule(CosineSchedule{1, total, {0, ratio}, 1e9});
    REQUIRE_OK(cosine.status());
    bool moved = false;
    for (const int64_t count : {int64_t{1}, total / 3, total / 3 * 2, total, 2 * total}) {
      CHECK(((*cosine)(count) >= 0 && (*cosine)(count) <= 1));
      moved = moved || (*cosine)(count) > 0;
    }
    CHECK(moved);
  }
  const absl::StatusOr<Schedule> linear = MakeSchedule(LinearSchedule{1, total, {0, 1}});
  REQUIRE_OK(linear.status());
  CHECK((*linear)(total / 2 + 1) == 0.5);
}

TEST_CASE("Schedules: OneCycle moves the rate and beta1 in opposite directions", "[zero]") {
  OneCycle cycle;
  cycle.cycle_min_lr = 1;
  cycle.cycle_max_lr = 3;
  cycle.cycle_first_step_size = 2;
  cycle.cycle_second_step_size = 4;
  cycle.cycle_min_mom = 0.5;
  cycle.cycle_max_mom = 0.75;
  cycle.decay_step_size = 2;
  cycle.decay_lr_rate = 1;
  cycle.decay_mom_rate = 0.125;
  CheckNear(Values(cycle, 9), {1, 2, 3, 2.5, 2, 1.5, 1, 1 / 1.5, .5}, 1);
  const absl::StatusOr<Schedule> momentum = MakeMomentumSchedule(cycle);
  REQUIRE_OK(momentum.status());
  std::vector<double> beta1;
  for (int64_t c = 1; c <= 9; ++c) beta1.push_back((*momentum)(c));
  CheckNear(beta1, {.75, .625, .5, .5625, .625, .6875, .75, .75 * 1.0625, .75 * 1.125}, 1);
  // The second half may be empty: from the top back to the bottom at once.
  cycle.cycle_second_step_size = 0;
  CheckNear(Values(cycle, 4), {1, 2, 1, 1 / 1.5}, 1);
}

TEST_CASE("Schedules: errors name every wrong field with its value", "[zero]") {
  WarmupDecayLr decay;
  decay.total_num_steps = 5;
  decay.warmup_num_steps = 10;
  CHECK(ErrorOf(decay) ==
        "WarmupDecayLR: warmup_num_steps is 10: it must be at most total_num_steps, 5");
  decay.total_num_steps = 0;
  decay.warmup_min_lr = -1;
  CHECK(ErrorOf(decay) ==
        "WarmupDecayLR: warmup_min_lr is -1: it must be finite and not negative; "
        "total_num_steps is 0: it must be at least 1");
  WarmupCosineLr cosine;
  CHECK_THAT(ErrorOf(cosine), ContainsSubstring("total_num_steps is 0"));
  cosine.total_num_steps = 10;
  cosine.warmup_num_steps = -2;
  CHECK_THAT(ErrorOf(cosine), ContainsSubstring("warmup_num_steps is -2"));
  cosine.warmup_num_steps = 2;
  cosine.lr = std::nan("");
  CHECK_THAT(ErrorOf(cosine), ContainsSubstring("lr is nan"));
  LinearSchedule linear{1e-3, 10, {11, 0}};
  CHECK_THAT(ErrorOf(linear), ContainsSubstring("linear: warmup_steps is 11"));
  linear.warmup = {2, 0.5};
  CHECK_THAT(ErrorOf(linear), ContainsSubstring("only one of them"));
  linear.warmup = {0, 1.5};
  CHECK_THAT(ErrorOf(linear), ContainsSubstring("warmup_ratio is 1.5"));
  CHECK_THAT(ErrorOf(CosineSchedule()), ContainsSubstring("total_steps is 0"));
  CHECK_THAT(ErrorOf(CosineRestartsSchedule{1e-3, 10, {}, 0}),
             ContainsSubstring("num_cycles is 0"));
  CHECK_THAT(ErrorOf(CosineSchedule{1e-3, 10, {}, 1e308}),
             ContainsSubstring("cosine: num_cycles is 1e+308: it must be from -1e9 to 1e9"));
  for (const double ratio : {0.0, 1.0}) {
    linear = {1e-3, std::numeric_limits<int64_t>::max(), {0, ratio}};
    CHECK(ErrorOf(linear) ==
          "linear: total_steps is 9223372036854775807: it must be at most 9007199254740992");
  }
  CHECK_THAT(ErrorOf(ConstantSchedule{-1, 0}), ContainsSubstring("constant: lr is -1"));
  CHECK_THAT(ErrorOf(StepSchedule{1, 0, 0.1}), ContainsSubstring("step_size is 0"));
  CHECK_THAT(ErrorOf(LrRangeTest{1e-3, 0, 1, false}),
             ContainsSubstring("lr_range_test_step_size is 0"));
  WarmupLr warmup;
  warmup.warmup_max_lr = INFINITY;
  CHECK_THAT(ErrorOf(warmup), ContainsSubstring("warmup_max_lr is inf"));
  OneCycle cycle;
  cycle.cycle_first_step_size = 0;
  cycle.cycle_max_mom = 1;
  CHECK(ErrorOf(cycle) ==
        "OneCycle: cycle_first_step_size is 0: it must be at least 1; "
        "cycle_max_mom is 1: it must be in [0, 1)");
  CHECK(absl::IsInvalidArgument(MakeMomentumSchedule(cycle).status()));
}

TEST_CASE("Schedules: a minimum above its maximum is refused", "[zero]") {
  WarmupLr warmup;
  warmup.warmup_min_lr = 0.5;
  CHECK(ErrorOf(warmup) ==
        "WarmupLR: warmup_min_lr is 0.5: it must be at most warmup_max_lr, 0.001");
  warmup.warmup_max_lr = 0.5;
  CHECK_OK(MakeSchedule(warmup).status());
  WarmupDecayLr decay;
  decay.total_num_steps = 2000;
  decay.warmup_min_lr = 0.5;
  CHECK_THAT(ErrorOf(decay), ContainsSubstring("warmup_min_lr is 0.5: it must be at most"));
  WarmupCosineLr cosine;
  cosine.total_num_steps = 2000;
  cosine.cos_min_ratio = 1.5;
  cosine.warmup_min_ratio = 2;
  CHECK(ErrorOf(cosine) ==
        "WarmupCosineLR: warmup_min_ratio is 2: it must be in [0, 1]; "
        "cos_min_ratio is 1.5: it must be in [0, 1]");
  OneCycle cycle;
  cycle.cycle_min_lr = 0.5;
  cycle.cycle_max_lr = 0.25;
  cycle.cycle_min_mom = 0.95;
  CHECK(ErrorOf(cycle) ==
        "OneCycle: cycle_min_lr is 0.5: it must be at most cycle_max_lr, 0.25; "
        "cycle_min_mom is 0.95: it must be at most cycle_max_mom, 0.9");
}

}  // namespace
}  // namespace zero::test
