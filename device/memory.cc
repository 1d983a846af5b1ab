#include "device/memory.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace zero {
namespace {

// Adds `bytes` to what is in use, unless that would pass `capacity` (negative: no limit).
bool Take(int64_t bytes, int64_t capacity, int64_t* in_use) {
  const int64_t limit = capacity >= 0 ? capacity : std::numeric_limits<int64_t>::max();
  // Written as a subtraction, so that a huge request cannot wrap around.
  if (bytes > limit - *in_use) return false;
  *in_use += bytes;
  return true;
}

}  // namespace

const char* Name(MemoryCategory category) {
  static constexpr const char* kNames[kMemoryCategories] = {
      "weights",     "gradients",    "optimizer_states", "gathered_weights", "gradient_slots",
      "receive",     "send",         "scalars",          "staging",          "offload_slots",
      "host_states", "host_weights", "host_slots",       "host_staging",     "activations",
      "other"};
  return kNames[static_cast<int>(category)];
}

bool IsHost(MemoryCategory category) {
  return category >= MemoryCategory::kHostStates && category <= MemoryCategory::kHostStaging;
}

bool IsOffloaded(MemoryCategory category) {
  return IsHost(category) && category != MemoryCategory::kHostStaging;
}

std::string Describe(const MemoryTable& table) {
  std::string text;
  for (int i = 0; i < kMemoryCategories; ++i) {
    if (table[i].peak == 0) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", Name(static_cast<MemoryCategory>(i)), " ",
                    table[i].current, " (peak ", table[i].peak, ")");
  }
  return text.empty() ? "nothing allocated" : text;
}

void MemoryLedger::Change(MemoryCategory category, int64_t bytes) {
  MemoryUse& use = table_[static_cast<int>(category)];
  use.current += bytes;
  use.peak = std::max(use.peak, use.current);
}

bool MemoryLedger::Reserve(int64_t bytes, int64_t capacity) {
  std::lock_guard<std::mutex> lock(mutex_);
  return Take(bytes, capacity, &owned_bytes_);
}

void MemoryLedger::CancelReserved(int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  owned_bytes_ -= bytes;
}

void MemoryLedger::AddReserved(MemoryCategory category, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++allocations_;
  Change(category, bytes);
}

void MemoryLedger::Remove(MemoryCategory category, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  owned_bytes_ -= bytes;
  Change(category, -bytes);
}

void MemoryLedger::AddAdopted(MemoryCategory category, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  Change(category, bytes);
}

void MemoryLedger::RemoveAdopted(MemoryCategory category, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  Change(category, -bytes);
}

bool MemoryLedger::ReserveHost(MemoryCategory category, int64_t bytes, int64_t capacity) {
  if (!IsOffloaded(category)) return true;
  std::lock_guard<std::mutex> lock(mutex_);
  return Take(bytes, capacity, &offloaded_bytes_);
}

void MemoryLedger::CancelReservedHost(MemoryCategory category, int64_t bytes) {
  if (!IsOffloaded(category)) return;
  std::lock_guard<std::mutex> lock(mutex_);
  offloaded_bytes_ -= bytes;
}

void MemoryLedger::RemoveHost(MemoryCategory category, int64_t bytes) {
  CancelReservedHost(category, bytes);
  RemoveAdopted(category, bytes);
}

MemoryTable MemoryLedger::table() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return table_;
}

int64_t MemoryLedger::owned_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return owned_bytes_;
}

int64_t MemoryLedger::offloaded_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return offloaded_bytes_;
}

int64_t MemoryLedger::allocations() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return allocations_;
}

}  // namespace zero
