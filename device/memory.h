// Who uses how much memory: current and peak bytes by category.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>

namespace zero {

enum class MemoryCategory : uint8_t {
  kWeights,          // what the trainer's kernels read, or this rank's slice of it
  kGradients,        // stored gradients
  kOptimizerStates,  // fp32 masters and moments
  kGatheredWeights,  // stage 3: slots that hold whole units while they are used
  kGradientSlots,    // what the trainer writes where it is not what is stored
  kReceive,          // the other ranks' parts of a reduction
  kSend,             // gradients in the dtype that they are sent in, where that is another one
  kScalars,          // loss scale, step rows, norms, parameter groups
  kStaging,          // what copies to and from the host pass through, on the device
  kOffloadSlots,     // on the device, what passes through on its way to and from memory of the host
  kHostStates,       // on the host: masters, moments and gradients that are offloaded
  kHostWeights,      // on the host: slices of weights that are offloaded
  kHostSlots,        // on the host: what passes through between device, host and disk
  kHostStaging,      // on the host: copies that are no state
  kActivations,      // the trainer's own
  kOther,            // the trainer's own
};
inline constexpr int kMemoryCategories = 16;

// Memory of the host, which AllocateHost gives out: not counted against a device's capacity.
bool IsHost(MemoryCategory category);

// Memory of the host that holds what is offloaded, not mere copies of it: counted against the host
// capacity of a device.
bool IsOffloaded(MemoryCategory category);

// "weights", "gradients", ...: the keys of metrics and messages.
const char* Name(MemoryCategory category);

struct MemoryUse {
  int64_t current = 0;  // bytes
  int64_t peak = 0;     // bytes, the largest `current` so far
};
using MemoryTable = std::array<MemoryUse, kMemoryCategories>;

// The rows that are not zero, "weights 1,024 (peak 2,048), ...", for messages.
std::string Describe(const MemoryTable& table);

// Counts bytes. Adopted bytes (memory that the trainer owns) and memory of the host appear in the
// table but do not count against the capacity of the device. Safe from several threads.
class MemoryLedger {
 public:
  // Sets bytes aside for an allocation to come. False, and nothing changed, if owned bytes would
  // pass `capacity` (negative: no limit).
  bool Reserve(int64_t bytes, int64_t capacity);
  // What became of it: nothing, or an allocation. Only the latter shows in the table.
  void CancelReserved(int64_t bytes);
  void AddReserved(MemoryCategory category, int64_t bytes);
  void Remove(MemoryCategory category, int64_t bytes);
  void AddAdopted(MemoryCategory category, int64_t bytes);
  void RemoveAdopted(MemoryCategory category, int64_t bytes);
  // Reserve and CancelReserved for memory of the host: what IsOffloaded counts against `capacity`,
  // the rest against none. AddReserved makes an allocation of both.
  bool ReserveHost(MemoryCategory category, int64_t bytes, int64_t capacity);
  void CancelReservedHost(MemoryCategory category, int64_t bytes);
  void RemoveHost(MemoryCategory category, int64_t bytes);

  MemoryTable table() const;
  int64_t owned_bytes() const;      // reserved ones included
  int64_t offloaded_bytes() const;  // likewise
  // Allocations made so far: constant in a steady state.
  int64_t allocations() const;

 private:
  void Change(MemoryCategory category, int64_t bytes);

  mutable std::mutex mutex_;
  MemoryTable table_;
  int64_t owned_bytes_ = 0;
  int64_t offloaded_bytes_ = 0;
  int64_t allocations_ = 0;
};

}  // namespace zero
