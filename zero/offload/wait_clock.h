// Time that streams of the host spend, by what they spend it on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "device/device.h"
#include "device/status.h"
#include "device/stream.h"

namespace zero {

// A sum of times that several streams add to. From any thread; outlives the streams' work.
class WaitClock {
 public:
  // Enqueues `work`, waits or operations, on `stream`, and adds how long the stream takes for it.
  // On a stream of a GPU, which does not run functions of the host, nothing is added.
  template <class F>
  absl::Status Time(const Stream& stream, F&& work) {
    if (stream.device().kind() != DeviceKind::kHost) return work();
    // Both operations are of one stream, and go with it.
    const auto start = std::make_shared<Clock::time_point>();
    ZERO_RETURN_IF_ERROR(stream.Enqueue("clock", [start] {
      *start = Clock::now();
      return absl::OkStatus();
    }));
    ZERO_RETURN_IF_ERROR(work());
    return stream.Enqueue("clock", [this, start] {
      const std::chrono::nanoseconds spent = Clock::now() - *start;
      nanoseconds_.fetch_add(spent.count(), std::memory_order_relaxed);
      return absl::OkStatus();
    });
  }
  double seconds() const {
    return 1e-9 * static_cast<double>(nanoseconds_.load(std::memory_order_relaxed));
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Relaxed: it must not hide from ThreadSanitizer what no event orders.
  std::atomic<int64_t> nanoseconds_{0};
};

}  // namespace zero
