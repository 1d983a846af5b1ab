#include "examples/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace zero::train {

Schedule MakeSchedule(const std::string& kind, double peak, int64_t warmup, int64_t steps) {
  return [=](int64_t count) {
    if (count < warmup) return peak * static_cast<double>(count) / static_cast<double>(warmup);
    if (kind == "constant") return peak;
    const auto length = static_cast<double>(std::max<int64_t>(1, steps + 1 - warmup));
    const double p = std::min(1.0, static_cast<double>(count - warmup) / length);
    if (kind == "linear") return peak * (1 - p);
    return peak * (1 + std::cos(std::numbers::pi * p)) / 2;
  };
}

}  // namespace zero::train
