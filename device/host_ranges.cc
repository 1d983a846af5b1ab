#include "device/host_ranges.h"

#include <iterator>

namespace zero {

void HostRanges::Add(const void* data, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  bytes_[reinterpret_cast<uintptr_t>(data)] = bytes;
}

void HostRanges::Remove(const void* data) {
  std::lock_guard<std::mutex> lock(mutex_);
  bytes_.erase(reinterpret_cast<uintptr_t>(data));
}

bool HostRanges::Contain(const void* address) const {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::lock_guard<std::mutex> lock(mutex_);
  const auto after = bytes_.upper_bound(wanted);
  if (after == bytes_.begin()) return false;
  const auto& [start, bytes] = *std::prev(after);
  return wanted - start < static_cast<uintptr_t>(bytes);
}

}  // namespace zero
