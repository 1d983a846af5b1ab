#include "kernels/loss_scale_math.h"
#include "tests/catch.h"
#include "tests/golden/golden.h"

namespace zero::golden {
namespace {

TEST_CASE("Loss scale: traces are those of DynamicLossScaler and of GradScaler") {
  const nlohmann::json cases = Read("loss_scales.json")["cases"];
  CHECK(cases.size() > 30);
  for (const nlohmann::json& one : cases) {
    INFO(one.dump());
    LossScaleRule rule;
    rule.kind = one["rule"] == "GradScaler" ? LossScaleKind::kGradScaler : LossScaleKind::kDynamic;
    rule.window = one["window"];
    rule.hysteresis = one.value("hysteresis", 2);
    rule.consecutive_hysteresis = one.value("consecutive_hysteresis", false) ? 1 : 0;
    rule.minimum = one.value("minimum", 1.0f);
    LossScaleState state;
    state.scale = one["start"];
    state.hysteresis = rule.hysteresis;
    std::vector<double> scales;
    bool stopped = false;
    for (const char step : one["steps"].get<std::string>()) {
      stopped = !UpdateLossScale(rule, step == 'o', &state);
      if (stopped) break;
      scales.push_back(static_cast<double>(state.scale));
    }
    CHECK(stopped == one["stopped"].get<bool>());
    CHECK(scales == one["scales"].get<std::vector<double>>());
  }
}

}  // namespace
}  // namespace zero::golden
