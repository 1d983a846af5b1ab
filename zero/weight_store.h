// Where the working weights are, and when they move.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "zero/context.h"
#include "zero/sharded_optimizer.h"

namespace zero {

class WeightStore {
 public:
  virtual ~WeightStore() = default;

  virtual void BeginPass(Pass pass) = 0;
  virtual absl::StatusOr<Weights> Acquire(int unit, const Stream& stream) = 0;
  virtual absl::Status Release(int unit, const Stream& stream) = 0;
  // kFailedPrecondition names a unit that is acquired and not released.
  absl::Status RequireReleased(const char* verb) const;

  // Runs `enqueue` where the unit's weights may be written on `stream`, then makes them whole again
  // for the next Acquire. `everywhere`: every rank writes all that it stores, nothing to exchange.
  virtual absl::Status Update(int unit, const Stream& stream, bool everywhere,
                              const std::function<absl::Status()>& enqueue) = 0;
  // Weights changed: nothing gathered before may be used again.
  virtual void Forget() {}
  // Work enqueued later on `stream` starts after every use so far, the trainer's included.
  // Uses that were not released count with all that their stream has been given. For the
  // destructor.
  virtual absl::Status WaitForUses(const Stream& stream);
  const SegmentBlock& block() const { return block_; }

 protected:
  WeightStore(const Context& context, SegmentBlock block);
  void Hold(int unit, const Stream& stream) { holders_[unit].push_back(stream.reference()); }
  absl::Status Drop(int unit, const Stream& stream);
  // Ends the uses of a unit that were not released.
  absl::Status EndHolds(int unit, Handover& order);
  // Fills data_[unit] from the start of each segment.
  void SetAddresses(int unit, const std::function<char*(int segment)>& start);

  const Context& context_;
  SegmentBlock block_;
  std::vector<Handover> order_;                 // of the stored weights, by unit
  std::vector<std::vector<const void*>> data_;  // by unit and parameter
  std::vector<std::vector<std::weak_ptr<const Stream>>>
      holders_;  // Acquires without Release, by unit
};

// Stages 0 to 2: all weights on every rank. `gather_updates`: each rank updates its slice, the rest
// comes by an all-gather in place.
absl::StatusOr<std::unique_ptr<WeightStore>> MakeWholeWeights(const Context& context,
                                                              bool gather_updates, void* adopted);
// Stage 3: this rank's slices, and slots that whole units are gathered into.
absl::StatusOr<std::unique_ptr<WeightStore>> MakeSlicedWeights(const Context& context);

}  // namespace zero
