// Which addresses are of the host.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace zero {

// The memory that AllocateHost has given out and that lives. Safe from several threads.
class HostRanges {
 public:
  void Add(const void* data, int64_t bytes);
  void Remove(const void* data);
  // Whether `address` lies in one of them, at its start or inside.
  bool Contain(const void* address) const;

 private:
  mutable std::mutex mutex_;
  std::map<uintptr_t, int64_t> bytes_;  // by address
};

}  // namespace zero
