// ShardedOptimizer::LoadWeights, between passes.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/weight_folder.h"
#include "zero/context.h"
#include "zero/rank_exchange.h"
#include "zero/save/weights.h"
#include "zero/state_transfer.h"

namespace zero {

// The weights of a folder, held against a model. Errors marked as Misuse have been told to every
// rank; others are of the device or the group.
class WeightLoader {
 public:
  // [collective] Opens the files and finds everything that does not fit. Changes nothing.
  static absl::StatusOr<WeightLoader> Open(const Context& context, RankExchange* exchange,
                                           const std::string& folder,
                                           const LoadWeightsOptions& options);

  // [collective] Reads what this rank stores. After an error weights and masters are half changed.
  absl::StatusOr<WeightsLoaded> Load(StateTransfer* transfer);

 private:
  WeightLoader(const Context& context, RankExchange* exchange, WeightFolder files)
      : context_(&context), exchange_(exchange), files_(std::move(files)) {}
  absl::Status Match(const LoadWeightsOptions& options);
  absl::Status CompareFiles();
  absl::Status CompareAliases() const;
  absl::Status CompareTensors(const std::string& a, const std::string& b) const;
  absl::Status Read(const Parameter& parameter, int64_t first, absl::Span<float> out);

  const Context* context_;
  RankExchange* exchange_;
  WeightFolder files_;
  std::map<std::string, std::string> name_in_file_;           // of a parameter
  std::vector<std::pair<std::string, std::string>> aliases_;  // tensors that must be equal
  WeightsLoaded loaded_;
};

}  // namespace zero
