// What a run will need, before anything is allocated.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "device/memory.h"
#include "examples/llama/config.h"
#include "examples/train/options.h"
#include "zero/plan.h"

namespace zero::train {

struct Cost {
  std::array<int64_t, kMemoryCategories> memory = {};  // bytes of a rank, by category
  WireBytes wire;                                      // bytes that a rank sends in a step, by name

  int64_t total_bytes() const;
};

// The optimizer's plan, the model's activations, and the exchange of losses. `options` finished.
// kInvalidArgument as in MakePlan.
absl::StatusOr<Cost> PlanCost(const Options& options, const llama::LlamaConfig& model);

}  // namespace zero::train
