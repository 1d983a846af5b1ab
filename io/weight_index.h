// model.safetensors.index.json, which says in which file of a folder each tensor lies.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace zero {

inline constexpr char kWeightFileName[] = "model.safetensors";
inline constexpr char kWeightIndexName[] = "model.safetensors.index.json";

struct WeightIndex {
  std::map<std::string, std::string> file_of;  // of a tensor: a name in the same folder
  std::optional<int64_t> total_size;           // bytes of all tensors
};

// Accepts one JSON object with an object "weight_map" of strings, and perhaps "metadata" with
// "total_size"; other keys are skipped. kInvalidArgument, with line and column, without the path:
// text that is no JSON, a key that occurs twice, a value of the wrong type, a file name that is a
// path.
absl::StatusOr<WeightIndex> ParseWeightIndex(const std::string& text);

// The text for `index`, keys sorted, one tensor a line.
std::string FormatWeightIndex(const WeightIndex& index);

// The name of shard `number`, counted from 1, of `count`: "model-00001-of-00002.safetensors".
std::string WeightShardName(int64_t number, int64_t count);

// Whether a file of this name is part of a model's weights as this library writes them: the single
// file, a shard of any count, or the index.
bool IsWeightFileName(const std::string& name);

}  // namespace zero
