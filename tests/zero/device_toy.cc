#include "tests/zero/device_toy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "kernels/kernels.h"

namespace zero::test {

absl::StatusOr<std::unique_ptr<DeviceToy>> DeviceToy::Create(Device* device, const Model& model) {
  int64_t longest = 0;
  for (const Unit& unit : model.units) {
    for (const Parameter& parameter : unit.parameters) {
      longest = std::max(longest, ElementCount(parameter));
    }
  }
  std::unique_ptr<DeviceToy> toy(new DeviceToy(device));
  const auto row = static_cast<int64_t>(sizeof(NormPartial));
  const std::pair<Buffer*, int64_t> buffers[] = {{&toy->values_, longest * 4},
                                                 {&toy->sum_, longest * 4},
                                                 {&toy->scratch_, NormChunks(longest) * row},
                                                 {&toy->partial_, row}};
  for (const auto& [buffer, bytes] : buffers) {
    ZERO_ASSIGN_OR_RETURN(*buffer, device->Allocate(bytes, MemoryCategory::kActivations, "toy"));
  }
  return toy;
}

absl::Status DeviceToy::Check(const Stream& stream, const Parameter& parameter,
                              const void* weight) {
  const int64_t n = ElementCount(parameter);
  if (n == 0) return absl::OkStatus();
  auto* const partial = partial_.as<NormPartial>();
  ZERO_RETURN_IF_ERROR(
      Norm(stream, weight, parameter.dtype, n, scratch_.as<NormPartial>(), partial));
  found_.push_back({parameter.name, {}});
  return device_->Copy(stream, &found_.back().partial, partial, sizeof(NormPartial));
}

absl::Status DeviceToy::Checked() const {
  for (const Found& found : found_) {
    if (found.partial.non_finite == 0) continue;
    return absl::DataLossError(absl::StrCat("weight ", found.parameter, "[",
                                            found.partial.first_non_finite, "] is not finite"));
  }
  return absl::OkStatus();
}

absl::Status DeviceToy::Backward(const Stream& stream, const Parameter& parameter,
                                 const void* weight, float weight_factor, std::vector<float> values,
                                 void* gradient, bool accumulate) {
  const int64_t n = ElementCount(parameter);
  if (n == 0) return absl::OkStatus();
  sent_.push_back(std::move(values));
  ZERO_RETURN_IF_ERROR(device_->Copy(stream, values_.data(), sent_.back().data(), n * 4));
  ZERO_RETURN_IF_ERROR(Cast(stream, weight, parameter.dtype, sum_.data(), DType::kF32, n));
  ZERO_RETURN_IF_ERROR(Scale(stream, sum_.data(), DType::kF32, weight_factor, n));
  ZERO_RETURN_IF_ERROR(Add(stream, values_.data(), DType::kF32, sum_.data(), DType::kF32, n));
  if (accumulate) return Add(stream, sum_.data(), DType::kF32, gradient, parameter.dtype, n);
  return Cast(stream, sum_.data(), DType::kF32, gradient, parameter.dtype, n);
}

}  // namespace zero::test
