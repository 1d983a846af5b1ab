// Stages 0 and 1: gradients of all passes are added up where they were made, and exchanged once.
#include <utility>

#include "device/status.h"
#include "kernels/kernels.h"
#include "zero/gradient_store.h"

namespace zero {
namespace {

class WholeGradients : public GradientStore {
 public:
  WholeGradients(const Context& context, SegmentBlock block, OrderedReduction* reduction,
                 NormMemory norms, OffloadPipeline* pipeline, bool gather_sums)
      : GradientStore(context, std::move(block), reduction, norms, pipeline),
        gather_sums_(gather_sums) {}

  using GradientStore::AllocateSlots;

 protected:
  absl::Status FinishGroup(const ReductionGroup& group) override {
    // With one pass, what was written goes out as it is; it is rounded to the stored dtype once,
    // after the sum.
    const bool single_pass = last_pass() && !stored(group.units[0]);
    const bool from_slots = slots() && single_pass;
    if (slots() && !single_pass) {
      for (int u : group.units) ZERO_RETURN_IF_ERROR(AddToStored(u));
      ZERO_RETURN_IF_ERROR(EndSlot(group, *context_.arithmetic));
    }
    if (!last_pass()) return absl::OkStatus();
    ZERO_RETURN_IF_ERROR(RunReduction(group, from_slots, /*accumulate=*/false));
    for (int u : group.units) {
      ZERO_RETURN_IF_ERROR(EnqueueNorms(u));
      ZERO_RETURN_IF_ERROR(Leave(u));
    }
    return gather_sums_ && context_.group->size() > 1 ? GatherSums(group) : absl::OkStatus();
  }

 private:
  absl::Status AddToStored(int unit) {
    const Stream& stream = *context_.arithmetic;
    const UnitLayout& layout = context_.unit(unit);
    return written_order(unit).Read(stream, [&] {
      return order(unit).Write(stream, [&]() -> absl::Status {
        ZERO_RETURN_IF_ERROR(CheckWritten(unit, stream));
        for (int s = 0; s < static_cast<int>(layout.segments.size()); ++s) {
          const Segment& segment = layout.segments[s];
          if (!segment.trainable || segment.elements == 0) continue;
          const auto combine = stored(unit) ? Add : Cast;
          ZERO_RETURN_IF_ERROR(combine(stream, WrittenAt(unit, s), segment.dtype,
                                       block_.at(unit, s), StoredTypeOf(unit, s),
                                       segment.elements));
        }
        return absl::OkStatus();
      });
    });
  }

  absl::Status GatherSums(const ReductionGroup& group) {
    const Stream& stream = *context_.communication;
    std::vector<AllGatherPiece> pieces;
    for (int u : group.units) {
      const UnitLayout& layout = context_.unit(u);
      for (int s = 0; s < static_cast<int>(layout.segments.size()); ++s) {
        const Segment& segment = layout.segments[s];
        if (!segment.trainable || segment.elements == 0) continue;
        const int64_t element = SizeOf(StoredTypeOf(u, s));
        pieces.push_back({block_.slice(u, s, segment.slice, element), block_.at(u, s),
                          segment.slice * element, segment.slice * element});
      }
    }
    if (pieces.empty()) return absl::OkStatus();
    for (int u : group.units) ZERO_RETURN_IF_ERROR(order(u).BeginWrite(stream));
    ZERO_RETURN_IF_ERROR(context_.group->AllGather(stream, kGatherGradients, pieces));
    for (int u : group.units) ZERO_RETURN_IF_ERROR(order(u).EndWrite(stream));
    return absl::OkStatus();
  }

  const bool gather_sums_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GradientStore>> MakeWholeGradients(
    const Context& context, bool gather_sums, OrderedReduction* reduction, NormMemory norms,
    OffloadPipeline* pipeline, void* adopted) {
  ZERO_ASSIGN_OR_RETURN(SegmentBlock block,
                        SegmentBlock::Create(context, context.plan->gradients,
                                             MemoryCategory::kGradients, "gradients", adopted));
  if (adopted != nullptr) {
    ZERO_RETURN_IF_ERROR(
        context.device->Fill(*context.arithmetic, adopted, 0, context.plan->gradients.bytes));
  }
  auto store = std::make_unique<WholeGradients>(context, std::move(block), reduction, norms,
                                                pipeline, gather_sums);
  ZERO_RETURN_IF_ERROR(store->AllocateSlots());
  return store;
}

}  // namespace zero
