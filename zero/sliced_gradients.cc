// Stages 2 and 3: every pass is reduced; a rank keeps its slices of the sums.
#include <array>
#include <optional>
#include <utility>

#include "device/status.h"
#include "zero/gradient_store.h"
#include "zero/offload/offload_pipeline.h"

namespace zero {
namespace {

// Kept on the device; where states are offloaded the sums of the last pass go to them.
class SlicedGradients : public GradientStore {
 public:
  SlicedGradients(const Context& context, SegmentBlock block, OrderedReduction* reduction,
                  NormMemory norms, OffloadPipeline* pipeline)
      : GradientStore(context, std::move(block), reduction, norms, pipeline) {}

  using GradientStore::AllocateSlots;

 protected:
  absl::Status FinishGroup(const ReductionGroup& group) override {
    ZERO_RETURN_IF_ERROR(
        RunReduction(group, /*from_slots=*/true, /*accumulate=*/stored(group.units[0])));
    if (!last_pass()) return absl::OkStatus();
    for (int u : group.units) {
      ZERO_RETURN_IF_ERROR(EnqueueNorms(u));
      ZERO_RETURN_IF_ERROR(Leave(u));
    }
    return absl::OkStatus();
  }
};

// Kept with the offloaded states: sums are made in two slots, used in turn, which what is stored is
// fetched into before a later pass adds to it. What is not offloaded of a slice is kept in the
// block.
class OffloadedGradients : public GradientStore {
 public:
  OffloadedGradients(const Context& context, SegmentBlock block, OrderedReduction* reduction,
                     NormMemory norms, OffloadPipeline* pipeline)
      : GradientStore(context, std::move(block), reduction, norms, pipeline) {}

  using GradientStore::AllocateSlots;

  absl::Status AllocateSums() {
    for (Sums& sums : sums_) {
      ZERO_ASSIGN_OR_RETURN(
          sums.memory,
          context_.device->Allocate(context_.plan->offload.sum_slot_bytes,
                                    MemoryCategory::kOffloadSlots, "slot for sums of gradients"));
      sums.order.emplace(context_.device);
    }
    return absl::OkStatus();
  }

 protected:
  char* SumsAt(int unit, int segment) const override {
    const ReductionPlan& reduction = context_.plan->reduction;
    const Sums& sums = sums_[reduction.group_of[unit] % 2];
    return sums.memory.bytes_at(context_.plan->offload.sum_offsets[unit][segment]);
  }

  absl::Status FinishGroup(const ReductionGroup& group) override {
    const Stream& arithmetic = *context_.arithmetic;
    Sums& sums = sums_[context_.plan->reduction.group_of[group.units[0]] % 2];
    const bool accumulate = stored(group.units[0]);
    if (accumulate) ZERO_RETURN_IF_ERROR(Fetch(group, *sums.order));
    ZERO_RETURN_IF_ERROR(sums.order->Write(arithmetic, [&]() -> absl::Status {
      if (!accumulate && context_.plan->config.poison_slots) {
        ZERO_RETURN_IF_ERROR(
            context_.device->Fill(arithmetic, sums.memory.data(), 0xFF, sums.memory.bytes()));
      }
      return RunReduction(group, /*from_slots=*/true, accumulate);
    }));
    for (int u : group.units) {
      ZERO_RETURN_IF_ERROR(sums.order->Read(arithmetic, [&]() -> absl::Status {
        if (last_pass()) ZERO_RETURN_IF_ERROR(EnqueueNorms(u));
        return CopyKept(u, arithmetic, /*to_block=*/true);
      }));
      ZERO_RETURN_IF_ERROR(pipeline()->StoreGradients(u, *sums.order, Slices(u)));
    }
    return absl::OkStatus();
  }

 private:
  struct Sums {
    Buffer memory;
    std::optional<Handover> order;
  };

  std::vector<char*> Slices(int unit) const {
    std::vector<char*> slices;
    for (int s = 0; s < static_cast<int>(context_.unit(unit).segments.size()); ++s) {
      slices.push_back(has_gradient(unit, s) ? SumsAt(unit, s) : nullptr);
    }
    return slices;
  }

  absl::Status Fetch(const ReductionGroup& group, Handover& sums) {
    const Stream& stream = pipeline()->copy_in();
    return sums.Write(stream, [&]() -> absl::Status {
      for (int u : group.units) {
        ZERO_RETURN_IF_ERROR(pipeline()->LoadGradients(u, Slices(u)));
        ZERO_RETURN_IF_ERROR(CopyKept(u, stream, /*to_block=*/false));
      }
      return absl::OkStatus();
    });
  }

  // What is not offloaded of a unit's slices, between its slot and the block.
  absl::Status CopyKept(int unit, const Stream& stream, bool to_block) {
    const auto copy = [&]() -> absl::Status {
      for (int s = 0; s < static_cast<int>(context_.unit(unit).segments.size()); ++s) {
        const Segment& segment = context_.unit(unit).segments[s];
        const int64_t first = OffloadedStateElements(context_.plan->config, segment);
        if (!has_gradient(unit, s) || first == segment.slice) continue;
        const int64_t element = SizeOf(StoredTypeOf(unit, s));
        char* const sums = SumsAt(unit, s) + first * element;
        char* const kept = block_.at(unit, s);
        ZERO_RETURN_IF_ERROR(context_.device->Copy(stream, to_block ? kept : sums,
                                                   to_block ? sums : kept,
                                                   (segment.slice - first) * element));
      }
      return absl::OkStatus();
    };
    return to_block ? order(unit).Write(stream, copy) : order(unit).Read(stream, copy);
  }

  std::array<Sums, 2> sums_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GradientStore>> MakeSlicedGradients(const Context& context,
                                                                   OrderedReduction* reduction,
                                                                   NormMemory norms,
                                                                   OffloadPipeline* pipeline) {
  ZERO_ASSIGN_OR_RETURN(SegmentBlock block,
                        SegmentBlock::Create(context, context.plan->gradients,
                                             MemoryCategory::kGradients, "gradient slices"));
  if (context.plan->offload.stores_gradients) {
    auto store =
        std::make_unique<OffloadedGradients>(context, std::move(block), reduction, norms, pipeline);
    ZERO_RETURN_IF_ERROR(store->AllocateSlots());
    ZERO_RETURN_IF_ERROR(store->AllocateSums());
    return store;
  }
  auto store =
      std::make_unique<SlicedGradients>(context, std::move(block), reduction, norms, pipeline);
  ZERO_RETURN_IF_ERROR(store->AllocateSlots());
  return store;
}

}  // namespace zero
