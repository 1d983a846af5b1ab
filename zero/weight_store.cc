#include "zero/weight_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero {

WeightStore::WeightStore(const Context& context, SegmentBlock block)
    : context_(context), block_(std::move(block)) {
  for (int u = 0; u < context.units(); ++u) order_.emplace_back(context.device);
  data_.resize(context.units());
  holds_.assign(context.units(), 0);
}

absl::Status WeightStore::Hold(int unit) {
  ++holds_[unit];
  return absl::OkStatus();
}

absl::Status WeightStore::Drop(int unit) {
  if (holds_[unit] == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("ReleaseWeights of unit '", context_.name(unit), "': it is not acquired"));
  }
  --holds_[unit];
  return absl::OkStatus();
}

absl::Status WeightStore::WaitForUses(const Stream& stream) {
  for (Handover& order : order_) ZERO_RETURN_IF_ERROR(order.BeginWrite(stream));
  return absl::OkStatus();
}

absl::Status WeightStore::RequireReleased(const char* verb) const {
  for (int u = 0; u < context_.units(); ++u) {
    if (holds_[u] == 0) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        verb, ": the weights of unit '", context_.name(u), "' are acquired and not released"));
  }
  return absl::OkStatus();
}

void WeightStore::SetAddresses(int unit, const std::function<char*(int segment)>& start) {
  const UnitLayout& layout = context_.unit(unit);
  for (const Run& run : layout.parameters) {
    char* const base = start(run.segment);
    const DType type = layout.segments[run.segment].dtype;
    data_[unit].push_back(base == nullptr ? nullptr : base + run.first * SizeOf(type));
  }
}

}  // namespace zero
