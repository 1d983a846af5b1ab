// A checkpoint held against the model and the configuration that it is to be loaded into.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "zero/plan.h"
#include "zero/save/checkpoint_reader.h"
#include "zero/sharded_optimizer.h"

namespace zero {

class CheckpointLoader {
 public:
  // Opens it and compares. kInvalidArgument lists every parameter and state that is missing, left
  // over or different. Otherwise as CheckpointReader::Open. `model` must live longer.
  static absl::StatusOr<CheckpointLoader> Open(const std::string& path, const Plan& plan,
                                               const Model& model);

  const CheckpointManifest& manifest() const { return reader_.manifest(); }
  // Hyper-parameters of the checkpoint that are not those of `config`.
  std::vector<std::string> Notes(const Config& config) const;
  // What ShardedOptimizer::Write is given: kMaster (with it the frozen weights), kMoment1 or
  // kMoment2. Reads as it is asked. Must not outlive this object.
  Source source(State state);

 private:
  explicit CheckpointLoader(CheckpointReader reader) : reader_(std::move(reader)) {}

  CheckpointReader reader_;
  std::map<std::string, int64_t> index_;  // of parameters in the manifest, by name
};

}  // namespace zero
