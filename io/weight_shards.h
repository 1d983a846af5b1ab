// How the tensors of a model are spread over the files of a folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "io/safetensors.h"

namespace zero {

struct Shard {
  std::string file;                        // a name: kWeightFileName or WeightShardName
  std::vector<SafetensorsTensor> tensors;  // in the order that was given
  int64_t data_bytes = 0;                  // of the tensors
};

// Fills one shard after the other, each with at most `max_shard_bytes` of data, in the given order;
// a tensor larger than that is a shard of its own. At least one shard. `begin` and `end` of the
// tensors are ignored. kInvalidArgument: a name twice, an unknown dtype, a size that overflows, a
// limit below 1.
absl::StatusOr<std::vector<Shard>> PlanShards(std::vector<SafetensorsTensor> tensors,
                                              int64_t max_shard_bytes);

// The text of the index for `shards`. Not to be written where there is one shard.
std::string FormatWeightIndex(const std::vector<Shard>& shards);

}  // namespace zero
