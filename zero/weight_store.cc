#include "zero/weight_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "zero/misuse.h"
#include "zero/offload/offload_pipeline.h"

namespace zero {

WeightStore::WeightStore(const Context& context, SegmentBlock block, OffloadPipeline* pipeline)
    : context_(context), pipeline_(pipeline), block_(std::move(block)) {
  for (int u = 0; u < context.units(); ++u) order_.emplace_back(context.device);
  data_.resize(context.units());
  holders_.resize(context.units());
}

absl::Status WeightStore::Drop(int unit, const Stream& stream) {
  std::vector<std::weak_ptr<const Stream>>& holders = holders_[unit];
  if (holders.empty()) {
    return Misuse(absl::FailedPreconditionError(
        absl::StrCat("ReleaseWeights of unit '", context_.name(unit), "': it is not acquired")));
  }
  const auto held = std::find_if(holders.begin(), holders.end(), [&](const auto& holder) {
    return holder.lock() == stream.reference().lock();
  });
  holders.erase(held != holders.end() ? held : holders.end() - 1);
  return absl::OkStatus();
}

absl::Status WeightStore::BeginUse(Handover& order, const Stream& stream) {
  const auto begin = [&] { return order.BeginRead(stream); };
  return pipeline_ == nullptr ? begin() : pipeline_->await_weights().Time(stream, begin);
}

absl::Status WeightStore::EndHolds(int unit, Handover& order) {
  for (const std::weak_ptr<const Stream>& holder : holders_[unit]) {
    const std::shared_ptr<const Stream> stream = holder.lock();
    if (stream != nullptr) ZERO_RETURN_IF_ERROR(order.EndRead(*stream));
  }
  return absl::OkStatus();
}

absl::Status WeightStore::WaitForUses(const Stream& stream) {
  for (int u = 0; u < context_.units(); ++u) {
    ZERO_RETURN_IF_ERROR(EndHolds(u, order_[u]));
    ZERO_RETURN_IF_ERROR(order_[u].BeginWrite(stream));
  }
  return absl::OkStatus();
}

absl::Status WeightStore::RequireReleased(const char* verb) const {
  for (int u = 0; u < context_.units(); ++u) {
    if (holders_[u].empty()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        verb, ": the weights of unit '", context_.name(u), "' are acquired and not released"));
  }
  return absl::OkStatus();
}

char* WeightStore::UpdatedAt(int unit, int s, int64_t element) const {
  const Segment& segment = context_.unit(unit).segments[s];
  const int64_t bytes = SizeOf(segment.dtype);
  if (block_.sliced()) {
    const int64_t first = OffloadedWeightElements(context_.plan->config, segment);
    return block_.at(unit, s) + (element - first) * bytes;
  }
  char* const start = context_.plan->moment1.sliced ? block_.slice(unit, s, segment.slice, bytes)
                                                    : block_.at(unit, s);
  return start + element * bytes;
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
