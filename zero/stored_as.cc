#include "zero/stored_as.h"

#include "kernels/float16_math.h"
#include "kernels/split_math.h"

namespace zero {
namespace {

template <class Element, class Round>
void EncodeTo(absl::Span<const float> values, void* to, const Round& round) {
  auto* const elements = static_cast<Element*>(to);
  for (size_t i = 0; i < values.size(); ++i) elements[i] = round(values[i]);
}

template <class Element>
void DecodeFrom(const void* from, absl::Span<float> values) {
  const auto* const elements = static_cast<const Element*>(from);
  for (size_t i = 0; i < values.size(); ++i) values[i] = ToFloat(elements[i]);
}

}  // namespace

StoredAs StoredAsOf(DType type) {
  switch (type) {
    case DType::kBF16:
      return StoredAs::kBF16;
    case DType::kF16:
      return StoredAs::kF16;
    case DType::kF32:
      break;
  }
  return StoredAs::kF32;
}

int64_t BytesOf(StoredAs stored) { return stored == StoredAs::kF32 ? 4 : 2; }

void Encode(absl::Span<const float> values, StoredAs stored, void* to) {
  switch (stored) {
    case StoredAs::kF32:
      return EncodeTo<float>(values, to, [](float x) { return x; });
    case StoredAs::kBF16:
      return EncodeTo<BFloat16>(values, to, [](float x) { return ToBFloat16(x); });
    case StoredAs::kBF16Away:
      return EncodeTo<BFloat16>(values, to, [](float x) { return ToBFloat16Away(x); });
    case StoredAs::kF16:
      return EncodeTo<Float16>(values, to, [](float x) { return ToFloat16(x); });
    case StoredAs::kRemainder:
      return EncodeTo<uint16_t>(values, to, [](float x) { return SplitMath(x).remainder; });
  }
}

void Decode(const void* from, StoredAs stored, absl::Span<float> values) {
  switch (stored) {
    case StoredAs::kBF16:
    case StoredAs::kBF16Away:
      return DecodeFrom<BFloat16>(from, values);
    case StoredAs::kF16:
      return DecodeFrom<Float16>(from, values);
    case StoredAs::kF32:
    case StoredAs::kRemainder:
      return DecodeFrom<float>(from, values);
  }
}

void AddRemainders(const uint16_t* remainders, absl::Span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    SplitFloat split;
    split.weight = ToBFloat16(values[i]);  // exact: it was a bf16
    split.remainder = remainders[i];
    values[i] = JoinMath(split);
  }
}

}  // namespace zero
