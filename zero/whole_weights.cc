// Stages 0 to 2: every rank holds all weights.
#include <utility>

#include "device/status.h"
#include "kernels/zero_ranges.h"
#include "zero/weight_store.h"

namespace zero {
namespace {

class WholeWeights : public WeightStore {
 public:
  WholeWeights(const Context& context, SegmentBlock block, OffloadPipeline* pipeline,
               bool gather_updates)
      : WeightStore(context, std::move(block), pipeline), gather_updates_(gather_updates) {
    for (int u = 0; u < context.units(); ++u) {
      SetAddresses(u, [&](int segment) { return block_.at(u, segment); });
    }
  }

  // Gaps of adopted memory hold what the trainer left there.
  absl::Status ZeroGaps() {
    std::vector<ByteRange> ranges;
    for (int u = 0; u < context_.units(); ++u) {
      const UnitLayout& layout = context_.unit(u);
      for (const Run& gap : layout.gaps) {
        const int64_t element = SizeOf(layout.segments[gap.segment].dtype);
        ranges.push_back({block_.at(u, gap.segment) + gap.first * element, gap.count * element});
      }
    }
    return ZeroRanges(*context_.arithmetic, std::move(ranges));
  }

  void BeginPass(Pass) override {}

  absl::StatusOr<Weights> Acquire(int unit, const Stream& stream) override {
    ZERO_RETURN_IF_ERROR(BeginUse(order_[unit], stream));
    Hold(unit, stream);
    return Weights{data_[unit]};
  }

  absl::Status Release(int unit, const Stream& stream) override {
    ZERO_RETURN_IF_ERROR(Drop(unit, stream));
    return order_[unit].EndRead(stream);
  }

  absl::Status Share(int unit) override {
    if (!gather_updates_ || context_.group->size() == 1) return absl::OkStatus();
    std::vector<AllGatherPiece> pieces;
    const UnitLayout& layout = context_.unit(unit);
    for (int s = 0; s < static_cast<int>(layout.segments.size()); ++s) {
      const Segment& segment = layout.segments[s];
      if (!segment.trainable || segment.elements == 0) continue;
      const int64_t element = SizeOf(segment.dtype);
      pieces.push_back({block_.slice(unit, s, segment.slice, element), block_.at(unit, s),
                        segment.slice * element, segment.slice * element});
    }
    if (pieces.empty()) return absl::OkStatus();
    return order_[unit].Write(*context_.communication, [&] {
      return context_.group->AllGather(*context_.communication, kGatherWeights, pieces);
    });
  }

 private:
  const bool gather_updates_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WeightStore>> MakeWholeWeights(const Context& context,
                                                              bool gather_updates,
                                                              OffloadPipeline* pipeline,
                                                              void* adopted) {
  ZERO_ASSIGN_OR_RETURN(SegmentBlock block,
                        SegmentBlock::Create(context, context.plan->weights,
                                             MemoryCategory::kWeights, "weights", adopted));
  auto store = std::make_unique<WholeWeights>(context, std::move(block), pipeline, gather_updates);
  if (adopted != nullptr) ZERO_RETURN_IF_ERROR(store->ZeroGaps());
  return store;
}

}  // namespace zero
