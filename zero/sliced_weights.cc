// Stage 3: every rank holds a slice of each unit; units are gathered into slots while they are
// used.
#include <algorithm>
#include <utility>

#include "device/status.h"
#include "zero/gather_schedule.h"
#include "zero/offload/offload_pipeline.h"
#include "zero/weight_store.h"

namespace zero {
namespace {

class SlicedWeights : public WeightStore {
 public:
  SlicedWeights(const Context& context, SegmentBlock block, OffloadPipeline* pipeline)
      : WeightStore(context, std::move(block), pipeline),
        schedule_(*context.model, context.plan->config.prefetch),
        evicted_(context.units(), false) {}

  absl::Status AllocateSlots() {
    std::vector<int64_t> bytes(schedule_.slots(), 0);
    for (int u = 0; u < context_.units(); ++u) {
      int64_t& slot = bytes[schedule_.slot_of(u)];
      slot = std::max(slot, context_.unit(u).weight_bytes());
    }
    // The next unit of a slot may be the largest: all shared slots are that large.
    const auto shared_end = bytes.begin() + schedule_.shared_slots();
    if (shared_end != bytes.begin()) {
      std::fill(bytes.begin(), shared_end, *std::max_element(bytes.begin(), shared_end));
    }
    for (int64_t size : bytes) {
      ZERO_ASSIGN_OR_RETURN(
          Buffer slot,
          context_.device->Allocate(size, MemoryCategory::kGatheredWeights, "weight slot"));
      slots_.push_back(std::move(slot));
      slot_order_.emplace_back(context_.device);
    }
    for (int u = 0; u < context_.units(); ++u) {
      std::vector<int64_t> starts;
      int64_t end = 0;
      for (const Segment& segment : context_.unit(u).segments) {
        starts.push_back(end);
        end += segment.elements * SizeOf(segment.dtype);
      }
      const Buffer& slot = slots_[schedule_.slot_of(u)];
      SetAddresses(u,
                   [&](int s) { return slot.bytes() == 0 ? nullptr : slot.bytes_at(starts[s]); });
      starts_.push_back(std::move(starts));
    }
    return absl::OkStatus();
  }

  void BeginPass(Pass pass) override {
    // An evaluation leaves no unit live. What it evicted is gathered again on its account.
    if (pass == Pass::kEvaluate && !evaluating_) {
      for (int u = 0; u < context_.units(); ++u) evicted_[u] = schedule_.live(u);
    }
    if (pass == Pass::kEvaluate || evaluating_) schedule_.Forget();
    evaluating_ = pass == Pass::kEvaluate;
    schedule_.BeginPass();
  }

  absl::StatusOr<Weights> Acquire(int unit, const Stream& stream) override {
    ZERO_ASSIGN_OR_RETURN(const std::vector<int> gathers, schedule_.Acquire(unit));
    for (int gathered : gathers) ZERO_RETURN_IF_ERROR(Gather(gathered));
    ZERO_RETURN_IF_ERROR(BeginUse(slot_order(unit), stream));
    Hold(unit, stream);
    return Weights{data_[unit]};
  }

  absl::Status Release(int unit, const Stream& stream) override {
    ZERO_RETURN_IF_ERROR(Drop(unit, stream));
    schedule_.Release(unit);
    return slot_order(unit).EndRead(stream);
  }

  void Forget() override {
    schedule_.Forget();
    evicted_.assign(evicted_.size(), false);
  }

  absl::Status WaitForUses(const Stream& stream) override {
    for (int u = 0; u < context_.units(); ++u) ZERO_RETURN_IF_ERROR(EndHolds(u, slot_order(u)));
    for (Handover& order : slot_order_) ZERO_RETURN_IF_ERROR(order.BeginWrite(stream));
    return WeightStore::WaitForUses(stream);
  }

 private:
  Handover& slot_order(int unit) { return slot_order_[schedule_.slot_of(unit)]; }

  absl::Status Gather(int unit) {
    const UnitLayout& layout = context_.unit(unit);
    const Buffer& slot = slots_[schedule_.slot_of(unit)];
    std::vector<AllGatherPiece> pieces;
    std::vector<char*> own(layout.segments.size(), nullptr);  // where the slot has our slices
    for (int s = 0; s < static_cast<int>(layout.segments.size()); ++s) {
      const Segment& segment = layout.segments[s];
      if (segment.elements == 0) continue;
      const int64_t bytes = segment.slice * SizeOf(segment.dtype);
      char* const whole = slot.bytes_at(starts_[unit][s]);
      own[s] = whole + context_.rank() * bytes;
      pieces.push_back({loads() ? own[s] : block_.at(unit, s), whole, bytes, bytes});
    }
    if (pieces.empty()) return absl::OkStatus();
    const Stream& stream = *context_.communication;
    const char* const name = evaluating_ || evicted_[unit] ? kEvaluation : kGatherWeights;
    if (!evaluating_) evicted_[unit] = false;
    const auto gather = [&] { return context_.group->AllGather(stream, name, pieces); };
    if (loads()) {
      ZERO_RETURN_IF_ERROR(Load(unit, slot, own));
      return slot_order(unit).Write(stream, gather);
    }
    return slot_order(unit).Write(stream, [&]() -> absl::Status {
      ZERO_RETURN_IF_ERROR(Poison(stream, slot));
      return order_[unit].Read(stream, gather);
    });
  }

  absl::Status Poison(const Stream& stream, const Buffer& slot) {
    if (!context_.plan->config.poison_slots) return absl::OkStatus();
    return context_.device->Fill(stream, slot.data(), 0xFF, slot.bytes());
  }

  // Our slices of a unit to its slot: what is offloaded of them, and what is not.
  absl::Status Load(int unit, const Buffer& slot, const std::vector<char*>& own) {
    const Stream& stream = pipeline_->copy_in();
    return slot_order(unit).Write(stream, [&]() -> absl::Status {
      ZERO_RETURN_IF_ERROR(Poison(stream, slot));
      ZERO_RETURN_IF_ERROR(pipeline_->LoadWeights(unit, order_[unit], own));
      return order_[unit].Read(stream, [&]() -> absl::Status {
        for (int s = 0; s < static_cast<int>(own.size()); ++s) {
          const Segment& segment = context_.unit(unit).segments[s];
          const int64_t first = OffloadedWeightElements(context_.plan->config, segment);
          if (own[s] == nullptr || first == segment.slice) continue;
          const int64_t element = SizeOf(segment.dtype);
          ZERO_RETURN_IF_ERROR(context_.device->Copy(stream, own[s] + first * element,
                                                     block_.at(unit, s),
                                                     (segment.slice - first) * element));
        }
        return absl::OkStatus();
      });
    });
  }

  // Whether slices, or a part of them, are not on the device.
  bool loads() const { return context_.plan->config.offload.parameters != Place::kDevice; }

  GatherSchedule schedule_;
  std::vector<Buffer> slots_;
  std::vector<Handover> slot_order_;
  std::vector<std::vector<int64_t>> starts_;  // [unit][segment], within the slot
  bool evaluating_ = false;
  std::vector<bool> evicted_;  // by unit: live when an evaluation began, and not gathered since
};

}  // namespace

absl::StatusOr<std::unique_ptr<WeightStore>> MakeSlicedWeights(const Context& context,
                                                               OffloadPipeline* pipeline) {
  ZERO_ASSIGN_OR_RETURN(SegmentBlock block,
                        SegmentBlock::Create(context, context.plan->weights,
                                             MemoryCategory::kWeights, "weight slices"));
  auto store = std::make_unique<SlicedWeights>(context, std::move(block), pipeline);
  ZERO_RETURN_IF_ERROR(store->AllocateSlots());
  return store;
}

}  // namespace zero
