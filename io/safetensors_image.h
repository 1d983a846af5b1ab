// What a safetensors file looks like before any byte of it is written.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "io/safetensors.h"

namespace zero {

// A file is `start`, then the bytes of `tensors` back to back: byte i of a tensor is byte
// data_start + begin + i of the file. Several writers can each write their ranges of it.
struct SafetensorsImage {
  std::string start;                       // the header's length, and the header
  std::vector<SafetensorsTensor> tensors;  // in the order of their bytes, with begin and end
  int64_t data_start = 0;
  int64_t bytes = 0;  // of the whole file
};

// `begin` and `end` of the tensors are ignored. kInvalidArgument, without a path: a name twice, an
// unknown dtype, a size that overflows, text that is not UTF-8, a header longer than the format
// allows.
absl::StatusOr<SafetensorsImage> PlanSafetensors(
    std::vector<SafetensorsTensor> tensors, const std::map<std::string, std::string>& metadata = {},
    SafetensorsOrder order = SafetensorsOrder::kGiven);

}  // namespace zero
