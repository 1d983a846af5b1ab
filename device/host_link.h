// A link of limited speed between a host and its device, acted by a machine that has none.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace zero {

// One direction. Those who use it at the same time share it: later ones queue behind. It orders
// nobody's memory.
class HostLink {
 public:
  using Clock = std::chrono::steady_clock;

  // Zero or less: as fast as memory.
  explicit HostLink(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  bool limited() const { return bytes_per_second_ > 0; }

  // How long `bytes` take alone.
  std::chrono::nanoseconds Duration(int64_t bytes) const;

  // Takes the link for `bytes` from now on, or from when it is free: the moment at which the last
  // of them is through.
  Clock::time_point Take(int64_t bytes);

  // Blocks until then.
  static void WaitUntil(Clock::time_point end);

 private:
  const double bytes_per_second_;
  std::atomic<Clock::rep> free_at_{0};
};

}  // namespace zero
