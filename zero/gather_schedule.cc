#include "zero/gather_schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "zero/misuse.h"

namespace zero {

GatherSchedule::GatherSchedule(const Model& model, int prefetch) : prefetch_(prefetch) {
  const int units = static_cast<int>(model.units.size());
  position_.assign(units, -1);
  slot_of_.assign(units, -1);
  holds_.assign(units, 0);
  for (int u = 0; u < units; ++u) {
    names_.push_back(model.units[u].name);
    resident_.push_back(model.units[u].resident);
    if (resident_[u]) continue;
    position_[u] = static_cast<int>(order_.size());
    order_.push_back(u);
  }
  const int shared = static_cast<int>(order_.size());
  shared_slots_ = prefetch >= shared ? shared : prefetch + 1;
  slots_ = shared_slots_;
  for (int u = 0; u < units; ++u) {
    slot_of_[u] = resident_[u] ? slots_++ : position_[u] % shared_slots_;
  }
  occupant_.assign(slots_, -1);
}

void GatherSchedule::BeginPass() {
  last_ = -1;
  direction_ = 1;
}

bool GatherSchedule::TakeSlot(int unit) {
  int& occupant = occupant_[slot_of_[unit]];
  if (occupant >= 0 && holds_[occupant] > 0) return false;
  occupant = unit;
  return true;
}

absl::StatusOr<std::vector<int>> GatherSchedule::Acquire(int unit) {
  std::vector<int> gathers;
  if (!live(unit)) {
    const int occupant = occupant_[slot_of_[unit]];
    if (!TakeSlot(unit)) {
      return Misuse(absl::FailedPreconditionError(absl::StrCat(
          "AcquireWeights of unit '", names_[unit], "': its slot holds unit '", names_[occupant],
          "', which is not released; release it first, or raise prefetch above ", prefetch_)));
    }
    gathers.push_back(unit);
  }
  ++holds_[unit];
  if (resident_[unit]) return gathers;

  const int position = position_[unit];
  if (last_ >= 0) direction_ = position > last_ ? 1 : -1;
  last_ = position;
  for (int ahead = 1; ahead <= prefetch_; ++ahead) {
    const int next = position + ahead * direction_;
    if (next < 0 || next >= static_cast<int>(order_.size())) break;
    if (live(order_[next])) continue;
    if (!TakeSlot(order_[next])) break;
    gathers.push_back(order_[next]);
  }
  return gathers;
}

void GatherSchedule::Release(int unit) { --holds_[unit]; }

void GatherSchedule::Forget() { std::fill(occupant_.begin(), occupant_.end(), -1); }

}  // namespace zero
