// Which parameters decay, and which are frozen: --weight_decay, --no_decay and --freeze.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/dtype.h"
#include "examples/llama/config.h"
#include "examples/train/options.h"
#include "zero/config.h"
#include "zero/model.h"

namespace zero::train {

// Appends a group for each pattern of --no_decay, then of --freeze, to the groups that
// llama::DescribeModel names.
void AddPatternGroups(const Options& options, Config& config);

// The parameters of `model` in `dtype`, in their groups.
absl::StatusOr<Model> GroupedModel(const Options& options, const llama::LlamaConfig& model,
                                   DType dtype);

// kInvalidArgument names the flag with a pattern that no tensor matches, or --freeze that leaves
// nothing to train.
absl::Status CheckPatterns(const Options& options, const llama::LlamaConfig& model);

// Lines for people: how many tensors and elements decay, do not, and are frozen, and which.
std::string DescribeGroups(const Options& options, const llama::LlamaConfig& model);

}  // namespace zero::train
