// How values of a state lie in memory, and what the host sees of them.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "device/dtype.h"

namespace zero {

enum class StoredAs : uint8_t {
  kF32,
  kBF16,      // rounded to nearest, ties to even
  kBF16Away,  // ties away from zero
  kF16,
  kRemainder,  // of a split master: what rounding to kBF16Away loses
};

StoredAs StoredAsOf(DType type);
int64_t BytesOf(StoredAs stored);

void Encode(absl::Span<const float> values, StoredAs stored, void* to);
// `stored` is not kRemainder, which is no value of its own.
void Decode(const void* from, StoredAs stored, absl::Span<float> values);
// values: decoded bf16 weights; becomes the masters that were split into them and `remainders`.
void AddRemainders(const uint16_t* remainders, absl::Span<float> values);

}  // namespace zero
