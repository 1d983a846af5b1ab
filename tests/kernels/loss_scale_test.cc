#include <string>
#include <vector>

#include "kernels/loss_scale_math.h"
#include "tests/catch.h"

namespace zero {
namespace {

struct Run {
  std::vector<float> scales;  // after each step
  bool stopped = false;       // at the last of them
};

// 'o' is an overflow, anything else a clean step.
Run Trace(const LossScaleRule& rule, float start, const std::string& steps) {
  LossScaleState state;
  state.scale = start;
  state.hysteresis = rule.hysteresis;
  Run run;
  for (char step : steps) {
    run.stopped = !UpdateLossScale(rule, step == 'o', &state);
    if (run.stopped) break;
    run.scales.push_back(state.scale);
  }
  return run;
}

LossScaleRule Dynamic(int64_t window, int32_t hysteresis, float minimum = 1) {
  LossScaleRule rule;
  rule.kind = LossScaleKind::kDynamic;
  rule.window = window;
  rule.hysteresis = hysteresis;
  rule.minimum = minimum;
  return rule;
}

using Scales = std::vector<float>;

TEST_CASE("Loss scale: dynamic scaling grows first after window + 1 clean steps", "[kernels]") {
  CHECK(Trace(Dynamic(4, 2), 1, std::string(14, '.')).scales ==
        Scales{1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 8, 8});
}

TEST_CASE("Loss scale: an overflow halves it and starts the window again", "[kernels]") {
  CHECK(Trace(Dynamic(4, 1), 16, "...o......").scales == Scales{16, 16, 16, 8, 8, 8, 8, 8, 16, 16});
}

TEST_CASE("Loss scale: hysteresis stands overflows until it is used up", "[kernels]") {
  LossScaleRule rule = Dynamic(4, 2);
  CHECK(Trace(rule, 16, "o.o.o.o.o.").scales == Scales{16, 16, 8, 8, 4, 4, 2, 2, 1, 1});
  rule.consecutive_hysteresis = 1;
  CHECK(Trace(rule, 16, "o.o.o.o.o.").scales == Scales(10, 16));
}

TEST_CASE("Loss scale: an overflow at the minimum stops the run", "[kernels]") {
  const Run one = Trace(Dynamic(1000, 1), 16, "oooooooo");
  CHECK(one.scales == Scales{8, 4, 2, 1});
  CHECK(one.stopped);
  const Run two = Trace(Dynamic(1000, 2), 16, "oooooooo");
  CHECK(two.scales == Scales{16, 8, 4, 2, 1});
  CHECK(two.stopped);
  const Run below_one = Trace(Dynamic(1000, 1, 0.5f), 2, "oooo");
  CHECK(below_one.scales == Scales{1, 0.5f});
  CHECK(below_one.stopped);
}

TEST_CASE("Loss scale: a minimum that is no power of two is reached and not passed", "[kernels]") {
  CHECK(Trace(Dynamic(1000, 1, 3), 16, "ooo").scales == Scales{8, 4, 3});
}

TEST_CASE("Loss scale: GradScaler grows at the window and knows no hysteresis", "[kernels]") {
  LossScaleRule rule = Dynamic(4, 2);
  rule.kind = LossScaleKind::kGradScaler;
  CHECK(Trace(rule, 65536, "......ooo..........o...").scales ==
        Scales{65536, 65536, 65536, 131072, 131072, 131072, 65536, 32768,
               16384, 16384, 16384, 16384,  32768,  32768,  32768, 32768,
               65536, 65536, 65536, 32768,  32768,  32768,  32768});
}

TEST_CASE("Loss scale: it stays finite and above zero", "[kernels]") {
  LossScaleRule rule = Dynamic(1, 1);
  rule.kind = LossScaleKind::kGradScaler;
  CHECK(Trace(rule, 1, std::string(300, '.')).scales.back() == 0x1p127f);
  CHECK(Trace(rule, 1, std::string(300, 'o')).scales.back() >= 0x1p-126f);
}

TEST_CASE("Loss scale: a static one stays", "[kernels]") {
  CHECK(Trace(LossScaleRule(), 1024, "o.o.").scales == Scales(4, 1024));
}

}  // namespace
}  // namespace zero
