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
  Offload offload;                                     // what is offloaded in this stage
  int64_t disk_bytes = 0;                              // of a rank's file

  int64_t total_bytes() const;
  int64_t host_bytes() const;       // of categories that are memory of the host
  int64_t offloaded_bytes() const;  // of those, what is offloaded
};

// The optimizer's plan, the model's activations, and the exchange of losses. `options` finished.
// kInvalidArgument as in MakePlan.
absl::StatusOr<Cost> PlanCost(const Options& options, const llama::LlamaConfig& model);

}  // namespace zero::train
