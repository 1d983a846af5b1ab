#include "examples/train/cost.h"

#include <numeric>
#include <utility>

#include "device/dtype.h"
#include "device/status.h"
#include "examples/llama/model.h"
#include "examples/train/groups.h"
#include "examples/train/rank_trainer.h"

namespace zero::train {

int64_t Cost::total_bytes() const {
  return std::accumulate(memory.begin(), memory.end(), int64_t{0});
}

namespace {

int64_t SumWhere(const Cost& cost, bool (*counts)(MemoryCategory)) {
  int64_t bytes = 0;
  for (int c = 0; c < kMemoryCategories; ++c) {
    if (counts(static_cast<MemoryCategory>(c))) bytes += cost.memory[static_cast<size_t>(c)];
  }
  return bytes;
}

}  // namespace

int64_t Cost::host_bytes() const { return SumWhere(*this, IsHost); }
int64_t Cost::offloaded_bytes() const { return SumWhere(*this, IsOffloaded); }

absl::StatusOr<Cost> PlanCost(const Options& options, const llama::LlamaConfig& model) {
  ZERO_ASSIGN_OR_RETURN(const llama::LlamaModel::Options activations, ModelOptions(options, model));
  ZERO_ASSIGN_OR_RETURN(Model grouped, GroupedModel(options, model, activations.dtype));
  ZERO_ASSIGN_OR_RETURN(const Plan plan, MakePlan(OptimizerConfig(options), std::move(grouped),
                                                  static_cast<int>(options.ranks)));
  Cost cost;
  cost.memory = plan.bytes;
  cost.offload = plan.config.offload;
  cost.disk_bytes = plan.offload.disk_bytes;
  cost.memory[static_cast<size_t>(MemoryCategory::kActivations)] +=
      llama::LlamaModel::ActivationBytes(model, activations);
  cost.memory[static_cast<size_t>(MemoryCategory::kHostStaging)] +=
      llama::LlamaModel::HostBytes(model, activations) +
      StepExchange::HostBytes(options.ranks, options.accumulation);
  cost.memory[static_cast<size_t>(MemoryCategory::kOther)] +=
      StepExchange::DeviceBytes(options.ranks, options.accumulation);
  cost.wire = plan.step_wire(options.accumulation);
  cost.wire[kMetrics] += (options.ranks - 1) * StepExchange::RecordBytes(options.accumulation);
  return cost;
}

}  // namespace zero::train
