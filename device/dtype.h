// Element types that weights, gradients and states may have, and their names.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace zero {

enum class DType : uint8_t { kF32, kBF16, kF16 };

// Bytes of one element.
constexpr int64_t SizeOf(DType type) { return type == DType::kF32 ? 4 : 2; }

// "fp32", "bf16", "fp16": the spelling of flags and messages.
const char* Name(DType type);

// The inverse of Name. kInvalidArgument lists the three names.
absl::StatusOr<DType> ParseDType(const std::string& name);

}  // namespace zero
