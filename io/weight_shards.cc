#include "io/weight_shards.h"

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/safetensors_layout.h"
#include "io/weight_index.h"

namespace zero {

absl::StatusOr<std::vector<Shard>> PlanShards(std::vector<SafetensorsTensor> tensors,
                                              int64_t max_shard_bytes) {
  if (max_shard_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a shard of at most ", max_shard_bytes, " bytes holds nothing"));
  }
  std::vector<Shard> shards(1);
  std::set<std::string> names;
  int64_t total = 0;
  for (SafetensorsTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(DescribeTensor(tensor.name), " is listed twice"));
    }
    const absl::StatusOr<int64_t> bytes = BytesOf(tensor);
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(DescribeTensor(tensor.name), ": ", std::string(bytes.status().message())));
    }
    if (__builtin_add_overflow(total, *bytes, &total)) {
      return absl::InvalidArgumentError(
          absl::StrCat(DescribeTensor(tensor.name), ": the sum of the sizes overflows 64 bits"));
    }
    if (!shards.back().tensors.empty() && *bytes > max_shard_bytes - shards.back().data_bytes) {
      shards.emplace_back();
    }
    shards.back().tensors.push_back(std::move(tensor));
    shards.back().data_bytes += *bytes;
  }
  const int64_t count = static_cast<int64_t>(shards.size());
  for (int64_t i = 0; i < count; ++i) {
    shards[static_cast<size_t>(i)].file =
        count == 1 ? kWeightFileName : WeightShardName(i + 1, count);
  }
  return shards;
}

std::string FormatWeightIndex(const std::vector<Shard>& shards) {
  WeightIndex index;
  index.total_size = 0;
  for (const Shard& shard : shards) {
    *index.total_size += shard.data_bytes;
    for (const SafetensorsTensor& tensor : shard.tensors) index.file_of[tensor.name] = shard.file;
  }
  return FormatWeightIndex(index);
}

}  // namespace zero
