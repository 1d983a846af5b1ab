// Stages 2 and 3: every pass is reduced; a rank keeps its slices of the sums.
#include <utility>

#include "device/status.h"
#include "zero/gradient_store.h"

namespace zero {
namespace {

class SlicedGradients : public GradientStore {
 public:
  SlicedGradients(const Context& context, SegmentBlock block, OrderedReduction* reduction,
                  NormMemory norms)
      : GradientStore(context, std::move(block), reduction, norms) {}

  using GradientStore::AllocateSlots;

 protected:
  absl::Status FinishGroup(const ReductionGroup& group) override {
    ZERO_RETURN_IF_ERROR(
        RunReduction(group, /*from_slots=*/true, /*accumulate=*/stored(group.units[0])));
    if (!last_pass()) return absl::OkStatus();
    for (int u : group.units) ZERO_RETURN_IF_ERROR(EnqueueNorms(u));
    return absl::OkStatus();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<GradientStore>> MakeSlicedGradients(const Context& context,
                                                                   OrderedReduction* reduction,
                                                                   NormMemory norms) {
  ZERO_ASSIGN_OR_RETURN(SegmentBlock block,
                        SegmentBlock::Create(context, context.plan->gradients,
                                             MemoryCategory::kGradients, "gradient slices"));
  auto store = std::make_unique<SlicedGradients>(context, std::move(block), reduction, norms);
  ZERO_RETURN_IF_ERROR(store->AllocateSlots());
  return store;
}

}  // namespace zero
