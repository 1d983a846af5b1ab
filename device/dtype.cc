#include "device/dtype.h"

#include "absl/strings/str_cat.h"

namespace zero {

const char* Name(DType type) {
  switch (type) {
    case DType::kF32:
      return "fp32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "fp16";
  }
  return "unknown";
}

absl::StatusOr<DType> ParseDType(const std::string& name) {
  for (DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (name == Name(type)) return type;
  }
  return absl::InvalidArgumentError(absl::StrCat("'", name, "' is none of fp32, bf16, fp16"));
}

}  // namespace zero
