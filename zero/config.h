// What to shard, how to update, and how much memory to spend on overlap.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/reduction_kind.h"
#include "device/dtype.h"

namespace zero {

enum class OptimizerKind : uint8_t { kAdamW, kSgd };

struct ParameterGroup {
  double learning_rate_factor = 1;
  double weight_decay = 0;
};

// Learning rate of the update that makes the count of applied steps `count` (1, 2, ...). Pure: it
// may be asked for counts that never come.
using Schedule = std::function<double(int64_t count)>;

struct Config {
  int stage =
      3;  // 0: everything on every rank; 1: states, 2: and gradients, 3: and weights sharded

  OptimizerKind optimizer = OptimizerKind::kAdamW;
  double learning_rate = 1e-3;  // used where `schedule` is empty
  Schedule schedule;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double momentum = 0;                        // SGD
  std::vector<ParameterGroup> groups = {{}};  // Parameter::group indexes it; at most 256
  double clip_norm = 0;                       // limit of the global gradient norm; 0: no clipping
  double loss_scale = 1;                      // the trainer multiplies its loss by it

  // What a rank keeps of its gradients between micro-batches: kF32, or the dtype of the weights
  // (any 16-bit value stands for it).
  DType accumulation = DType::kF32;
  int64_t reduce_bucket_size = 500'000'000;  // elements reduced in one call, over all ranks
  int prefetch = 1;                          // stage 3: units gathered ahead
  ReductionKind reduction = ReductionKind::kOrdered;  // the same bits everywhere, or the group's own

  // Fills slots with NaN before each hand-out, so that whatever is read unwritten shows.
  bool poison_slots = false;
};

// kInvalidArgument names the field, its value and what would be right.
absl::Status Validate(const Config& config);

}  // namespace zero
