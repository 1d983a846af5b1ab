// Where gradients are written, when they are reduced, and what is kept of them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/ordered_reduction.h"
#include "kernels/step_scalars.h"
#include "kernels/zero_ranges.h"
#include "zero/context.h"
#include "zero/sharded_optimizer.h"
#include "zero/written_check.h"

namespace zero {

class OffloadPipeline;

// Where the norms of reduced gradients go, in device memory: `partials` has one row for each
// trainable segment that is not empty, in registration order.
struct NormMemory {
  NormPartial* partials = nullptr;
  NormPartial* scratch = nullptr;
  WrittenCheck* written = nullptr;  // null: what is written is not checked
};

// The life of a gradient: the trainer writes a unit's gradients into a slot or into the stored
// block (Acquire), hands them over (Reduce), and when the units of a reduction group are complete
// they are exchanged, added up in rank order and stored. Groups are completed strictly in the order
// of backward.
class GradientStore {
 public:
  virtual ~GradientStore() = default;

  // Called behind the sum of each reduction group of a last pass, in their order.
  void set_after_group(std::function<absl::Status()> after) { after_group_ = std::move(after); }

  void BeginPass(bool last);
  // Reduces units that the pass did not report, as zeros.
  absl::Status FinishPass();
  absl::StatusOr<Gradients> Acquire(int unit, const Stream& stream);
  absl::Status Reduce(int unit, const Stream& stream, absl::Span<const int> unwritten);
  // Between the last pass and EndStep: the unit's sums are on their way to where they are used.
  bool Complete(int unit) const;
  // The stored gradients were used; the next pass overwrites them.
  void EndStep();

  // Work enqueued later on `stream` starts after every use so far, the trainer's included.
  absl::Status WaitForUses(const Stream& stream);

  const SegmentBlock& block() const { return block_; }
  Handover& order(int unit) { return order_[unit]; }
  // Element `element`, on the device, of the stored gradient of what this rank updates: of its
  // slice, or in stage 0 of the whole segment.
  char* UpdatedAt(int unit, int segment, int64_t element) const;

 protected:
  GradientStore(const Context& context, SegmentBlock block, OrderedReduction* reduction,
                NormMemory norms, OffloadPipeline* pipeline);
  absl::Status AllocateSlots();

  // All units of the group are written, in slots or in the block.
  virtual absl::Status FinishGroup(const ReductionGroup& group) = 0;

  // True if the trainer writes into slots.
  bool slots() const { return context_.plan->uses_gradient_slots; }
  bool stored(int unit) const { return stored_[unit]; }
  bool last_pass() const { return last_pass_; }
  DType StoredTypeOf(int unit, int segment) const {
    return StoredType(context_.plan->config, context_.unit(unit).segments[segment]);
  }
  char* WrittenAt(int unit, int segment) const;
  // Of what the trainer writes for the unit.
  Handover& written_order(int unit) { return slots() ? written_[unit] : order_[unit]; }
  // What lies in the group's slot was read by the work enqueued so far on `reader`.
  absl::Status EndSlot(const ReductionGroup& group, const Stream& reader);

  // Where the sums of this rank's slice of a segment go: to the block.
  virtual char* SumsAt(int unit, int segment) const;
  // Exchanges and adds up the group: from slots in the written dtype, or from the block in the
  // stored one; own slices go to SumsAt.
  absl::Status RunReduction(const ReductionGroup& group, bool from_slots, bool accumulate);
  // Divides what a group sends by Config::gradient_predivide_factor, in place.
  absl::Status Predivide(const ReductionGroup& group, bool from_slots, const Stream& reader);
  // `columns` of each slice at `from`, as `sent`, in the send buffer at `offset`; returns where.
  absl::StatusOr<const char*> Convert(const Stream& reader, const Segment& segment,
                                      const char* from, DType source, DType sent, int64_t columns,
                                      int64_t offset);
  absl::Status EnqueueNorms(int unit);
  // Where slices are offloaded once they are complete, sends them on their way.
  absl::Status Leave(int unit);
  OffloadPipeline* pipeline() const { return pipeline_; }
  bool has_gradient(int unit, int segment) const { return norm_row_[unit][segment] >= 0; }
  // Where that is wanted, looks for inf and NaN in what this rank wrote, which `reader` may read.
  absl::Status CheckWritten(int unit, const Stream& reader);

  const Context& context_;
  SegmentBlock block_;

 private:
  enum class Progress : uint8_t { kOpen, kAcquired, kReported };

  // Nothing earlier in backward waits in the unit's slot any more.
  absl::Status FreeSlot(int unit);
  absl::Status PassOver(int unit);
  // Units of a slot are written by several streams at once: each starts after the slot's last
  // reader.
  absl::Status BeginWriting(int unit, const Stream& stream);
  // The acquired unit's work so far, on the stream that it was acquired on, is a write.
  absl::Status EndWriting(int unit);
  // kFailedPrecondition if a unit from the next one down to `last` is acquired and not reduced.
  absl::Status RequireReduced(int last) const;
  absl::Status MarkReported(int unit);
  std::vector<ByteRange> ZeroedRanges(int unit, absl::Span<const int> unwritten) const;

  OrderedReduction* const reduction_;
  const NormMemory norms_;
  OffloadPipeline* const pipeline_;  // null: nothing is offloaded
  std::function<absl::Status()> after_group_;
  std::vector<Handover> order_;           // of the stored gradients, by unit
  Buffer send_;                           // one call's parts, where they are sent in another dtype
  std::vector<Buffer> slot_memory_;       // by slot
  std::vector<Handover> slot_order_;      // writes: the slot was read, and is free again
  std::vector<Handover> written_;         // by unit, of its part of a slot
  std::vector<int> previous_in_slot_;     // by group: the group that uses its slot before; -1: none
  std::vector<std::vector<void*>> data_;  // by unit and parameter
  std::vector<std::vector<int>> norm_row_;  // [unit][segment]; -1
  int norm_rows_ = 0;

  std::vector<Progress> progress_;                   // by unit, in this pass
  std::vector<std::weak_ptr<const Stream>> writer_;  // by unit: acquired on it and not reduced
  std::vector<int> reported_in_group_;
  std::vector<bool> stored_;  // by unit: the block holds gradients of this step
  int next_ = -1;             // next unit in the order of backward
  bool last_pass_ = false;    // has begun, until EndStep
};

// Stages 0 and 1: whole gradients on every rank, exchanged once per step. `gather_sums`: every rank
// gets every sum (stage 0). `pipeline`: null where nothing is offloaded.
absl::StatusOr<std::unique_ptr<GradientStore>> MakeWholeGradients(
    const Context& context, bool gather_sums, OrderedReduction* reduction, NormMemory norms,
    OffloadPipeline* pipeline, void* adopted);
// Stages 2 and 3: every pass is reduced, and this rank keeps its slices of the sums, on the device
// or, where the plan says so, with the offloaded states.
absl::StatusOr<std::unique_ptr<GradientStore>> MakeSlicedGradients(const Context& context,
                                                                   OrderedReduction* reduction,
                                                                   NormMemory norms,
                                                                   OffloadPipeline* pipeline);

}  // namespace zero
