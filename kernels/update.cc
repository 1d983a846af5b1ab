#include "kernels/update.h"

#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero {
namespace {

absl::Status Refused(const char* kernel, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat(kernel, ": ", what));
}

absl::Status CheckMaster(const char* kernel, const MasterMemory& w) {
  if (w.weight == nullptr) {
    if (w.remainder != nullptr) return Refused(kernel, "weight is null beside a remainder");
    return CheckPointer(kernel, "master", w.master);
  }
  if (w.weight_type == DType::kF32) {
    return Refused(kernel, "weight_type: an fp32 weight is its own master: leave weight null");
  }
  if (w.master != nullptr) {
    if (w.remainder != nullptr) return Refused(kernel, "remainder: an fp32 master has none");
    if (w.ties_away && w.weight_type != DType::kBF16) {
      return Refused(kernel, "ties_away: fp16 weights round ties to even only");
    }
    return absl::OkStatus();
  }
  if (w.weight_type != DType::kBF16) {
    return Refused(kernel, "weight_type: fp16 weights need an fp32 master");
  }
  if (w.first_element < 0 || w.first_element % kGroupElements != 0) {
    return absl::InvalidArgumentError(absl::StrCat(kernel, ": first_element is ", w.first_element,
                                                   ", not a multiple of ", kGroupElements));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckUpdate(const char* kernel, const UpdateArguments& a) {
  ZERO_RETURN_IF_ERROR(CheckCount(kernel, a.n, kGroupElements));
  if (a.n == 0) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(CheckPointer(kernel, "gradient", a.gradient));
  ZERO_RETURN_IF_ERROR(CheckMaster(kernel, a.weights));
  const DType weight = a.weights.weight == nullptr ? DType::kF32 : a.weights.weight_type;
  if (a.gradient_type != DType::kF32 && a.gradient_type != weight) {
    return absl::InvalidArgumentError(absl::StrCat(kernel, ": gradient_type is ",
                                                   Name(a.gradient_type), " for ", Name(weight),
                                                   " weights: use fp32 or the weights' type"));
  }
  ZERO_RETURN_IF_ERROR(CheckPointer(kernel, "groups", a.groups));
  ZERO_RETURN_IF_ERROR(CheckPointer(kernel, "scalars", a.scalars));
  return CheckPointer(kernel, "rows", a.rows);
}

}  // namespace zero
