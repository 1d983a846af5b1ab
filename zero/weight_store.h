// Where the working weights are, and when they move.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "zero/context.h"
#include "zero/sharded_optimizer.h"

namespace zero {

class OffloadPipeline;

class WeightStore {
 public:
  virtual ~WeightStore() = default;

  virtual void BeginPass(Pass pass) = 0;
  virtual absl::StatusOr<Weights> Acquire(int unit, const Stream& stream) = 0;
  virtual absl::Status Release(int unit, const Stream& stream) = 0;
  bool held(int unit) const { return !holders_[unit].empty(); }  // acquired and not released
  // kFailedPrecondition names a unit that is held.
  absl::Status RequireReleased(const char* verb) const;

  // Runs `enqueue` where what this rank stores of the unit's weights may be written on `stream`.
  absl::Status Write(int unit, const Stream& stream, const std::function<absl::Status()>& enqueue) {
    return order_[unit].Write(stream, enqueue);
  }
  // What this rank updates of the unit was written: makes the unit whole for the next Acquire.
  virtual absl::Status Share(int /*unit*/) { return absl::OkStatus(); }
  // Weights changed: nothing gathered before may be used again.
  virtual void Forget() {}
  // Work enqueued later on `stream` starts after every use so far, the trainer's included.
  // Uses that were not released count with all that their stream has been given. For the
  // destructor.
  virtual absl::Status WaitForUses(const Stream& stream);
  const SegmentBlock& block() const { return block_; }
  Handover& order(int unit) { return order_[unit]; }
  // Element `element`, on the device, of what this rank updates of a segment: of its slice, or in
  // stage 0 of all of it.
  char* UpdatedAt(int unit, int segment, int64_t element) const;

 protected:
  WeightStore(const Context& context, SegmentBlock block, OffloadPipeline* pipeline);
  void Hold(int unit, const Stream& stream) { holders_[unit].push_back(stream.reference()); }
  absl::Status Drop(int unit, const Stream& stream);
  // Ends the uses of a unit that were not released.
  absl::Status EndHolds(int unit, Handover& order);
  // The trainer's read of a unit begins; timed where something is offloaded.
  absl::Status BeginUse(Handover& order, const Stream& stream);
  // Fills data_[unit] from the start of each segment.
  void SetAddresses(int unit, const std::function<char*(int segment)>& start);

  const Context& context_;
  OffloadPipeline* const pipeline_;  // null: nothing is offloaded
  SegmentBlock block_;
  std::vector<Handover> order_;                 // of the stored weights, by unit
  std::vector<std::vector<const void*>> data_;  // by unit and parameter
  std::vector<std::vector<std::weak_ptr<const Stream>>>
      holders_;  // Acquires without Release, by unit
};

// Stages 0 to 2: all weights on every rank. `gather_updates`: each rank updates its slice, the rest
// comes by an all-gather in place.
absl::StatusOr<std::unique_ptr<WeightStore>> MakeWholeWeights(const Context& context,
                                                              bool gather_updates,
                                                              OffloadPipeline* pipeline,
                                                              void* adopted);
// Stage 3: this rank's slices, and slots that whole units are gathered into. `pipeline` brings what
// is offloaded of the slices; null where nothing is.
absl::StatusOr<std::unique_ptr<WeightStore>> MakeSlicedWeights(const Context& context,
                                                               OffloadPipeline* pipeline);

}  // namespace zero
