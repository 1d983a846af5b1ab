#include "device/host_link.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <thread>

namespace zero {
namespace {

// A thread that sleeps wakes up to this much late: the rest is polled.
constexpr std::chrono::microseconds kLate(80);

}  // namespace

std::chrono::nanoseconds HostLink::Duration(int64_t bytes) const {
  if (!limited()) return std::chrono::nanoseconds(0);
  const double nanoseconds = std::ceil(static_cast<double>(bytes) / bytes_per_second_ * 1e9);
  // No longer than a clock can hold.
  return std::chrono::nanoseconds(static_cast<int64_t>(std::min(nanoseconds, 1e18)));
}

HostLink::Clock::time_point HostLink::Take(int64_t bytes) {
  const Clock::rep duration = Clock::duration(Duration(bytes)).count();
  const Clock::rep now = Clock::now().time_since_epoch().count();
  Clock::rep free_at = free_at_.load(std::memory_order_relaxed);
  Clock::rep end = 0;
  do {
    end = std::max(free_at, now) + duration;
  } while (!free_at_.compare_exchange_weak(free_at, end, std::memory_order_relaxed));
  return Clock::time_point(Clock::duration(end));
}

void HostLink::WaitUntil(Clock::time_point end) {
  if (end - Clock::now() > kLate) std::this_thread::sleep_until(end - kLate);
  while (Clock::now() < end) sched_yield();
}

}  // namespace zero
