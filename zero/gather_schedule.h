// Stage 3: which unit is gathered into which slot, and when. Pure logic, shared by the optimizer
// and by MakePlan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "zero/model.h"

namespace zero {

// Units that are not resident take the slots in turn, so that a unit has the same addresses in
// every step and the next units of either direction never meet in a slot. A resident unit has a
// slot of its own.
class GatherSchedule {
 public:
  GatherSchedule(const Model& model, int prefetch);

  int shared_slots() const { return shared_slots_; }
  int slots() const { return slots_; }
  int slot_of(int unit) const { return slot_of_[unit]; }

  // A new forward: the direction is up.
  void BeginPass();
  // The units to gather now, in this order: `unit` unless it is live, then up to `prefetch` next
  // ones in the direction of the pass. kFailedPrecondition names the unit that holds the slot.
  absl::StatusOr<std::vector<int>> Acquire(int unit);
  void Release(int unit);
  // Weights changed, or what was gathered must not be reused.
  void Forget();
  bool live(int unit) const { return occupant_[slot_of_[unit]] == unit; }

 private:
  // True if it was gathered into its slot.
  bool TakeSlot(int unit);

  std::vector<std::string> names_;
  std::vector<bool> resident_;
  std::vector<int> order_;     // units that are not resident
  std::vector<int> position_;  // by unit: its index in order_, -1 for a resident one
  std::vector<int> slot_of_;
  std::vector<int> occupant_;  // by slot; -1: nothing
  std::vector<int> holds_;     // by unit: Acquires without Release
  int prefetch_;
  int shared_slots_ = 0;
  int slots_ = 0;
  int last_ = -1;  // position of the last unit acquired in this pass
  int direction_ = 1;
};

}  // namespace zero
