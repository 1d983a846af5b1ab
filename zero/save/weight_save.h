// ShardedOptimizer::SaveWeights, between passes.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "zero/context.h"
#include "zero/rank_exchange.h"
#include "zero/save/weights.h"
#include "zero/state_transfer.h"

namespace zero {

// [collective] Errors marked as Misuse have been told to every rank and have changed nothing but
// files; others are of the device or the group.
absl::StatusOr<WeightsSaved> SaveWeights(const Context& context, StateTransfer* transfer,
                                         RankExchange* exchange, const std::string& folder,
                                         const SaveWeightsOptions& options);

}  // namespace zero
