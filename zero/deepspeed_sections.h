// The parts of a DeepSpeed configuration. Each reads its keys from `values` into `result`, and says
// there what is wrong with them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "zero/deepspeed_config.h"
#include "zero/deepspeed_values.h"

namespace zero {

// What a file or its caller says of the three batch sizes.
struct BatchSizes {
  std::optional<int64_t> train;         // of a step, over all ranks
  std::optional<int64_t> micro;         // of a rank in one pass
  std::optional<int64_t> accumulation;  // passes of a step
};

// Fills in the sizes that are missing: the train batch is micro-batch x accumulation x `ranks`. One
// alone leaves an accumulation of 1. Sizes and `ranks` must be at least 1. Returns what does not
// fit, as a sentence without a subject; empty: all three are set and fit.
std::string CompleteBatchSizes(BatchSizes& sizes, int64_t ranks);

void ReadBatchSizes(DeepSpeedValues& values, const ConfigContext& context, DeepSpeedConfig& result);

// fp16, bf16: the dtype of the weights, their masters, the loss scale.
void ReadPrecision(DeepSpeedValues& values, const ConfigContext& context, DeepSpeedConfig& result);

// Clipping, and what gradients are added, stored and sent in. After ReadPrecision.
void ReadGradients(DeepSpeedValues& values, const ConfigContext& context, DeepSpeedConfig& result);

void ReadOptimizer(DeepSpeedValues& values, DeepSpeedConfig& result);
// optimizer.params.betas as JSON.
std::string BetasText(const Config& config);

// After ReadOptimizer, whose rate is the default.
void ReadScheduler(DeepSpeedValues& values, const ConfigContext& context, DeepSpeedConfig& result);

// offload_optimizer and offload_param of zero_optimization, and their old forms.
void ReadOffload(DeepSpeedValues& values, int64_t stage, Offload& offload);

// zero_optimization.
void ReadZero(DeepSpeedValues& values, const ConfigContext& context, DeepSpeedConfig& result);

}  // namespace zero
