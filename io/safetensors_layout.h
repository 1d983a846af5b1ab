// The sizes and places of the tensors of a safetensors file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/safetensors.h"

namespace zero {

inline constexpr int64_t kSafetensorsHeaderLimit = 100'000'000;  // bytes
inline constexpr size_t kSafetensorsRankLimit = 64;              // dimensions

// "tensor 'name'": escaped, and cut if it is long.
std::string DescribeTensor(const std::string& name);

// Position of the dtype in the list of the format, which goes from the least to the most aligned;
// -1 if there is no such dtype.
int SafetensorsDTypeOrder(const std::string& dtype);

// Bytes that dtype and shape ask for. The error says what is wrong, without path and name.
absl::StatusOr<int64_t> BytesOf(const SafetensorsTensor& tensor);

// Sorts `tensors` by their bytes and checks that each has the size of its shape and that together
// they cover [0, data_bytes) without gaps and overlaps. kDataLoss.
absl::Status CheckLayout(std::vector<SafetensorsTensor>& tensors, int64_t data_bytes);

}  // namespace zero
