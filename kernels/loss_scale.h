// How the loss scale moves, on the device: no step waits for the host to learn of an overflow.
#pragma once

#include <cstdint>

namespace zero {

enum class LossScaleKind : int32_t { kStatic, kDynamic, kGradScaler };

struct LossScaleRule {
  LossScaleKind kind = LossScaleKind::kStatic;
  int32_t hysteresis = 2;
  int32_t consecutive_hysteresis = 0;
  float minimum = 1;
  int64_t window = 1000;
};

// Lives on the device. `scale` is what the loss of the next step is multiplied by.
struct LossScaleState {
  float scale = 1;
  int32_t hysteresis = 2;      // overflows that the scale still stands, plus one
  int64_t iterations = 0;      // steps, skipped ones included
  int64_t last_overflow = -1;  // kDynamic: its iteration
  int64_t clean = 0;           // kGradScaler: steps since the last change
};

}  // namespace zero
