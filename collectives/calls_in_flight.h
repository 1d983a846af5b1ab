// Collectives that a device's streams hold and have not finished, and since when they run.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "device/device.h"

namespace zero {

// A call is between two events: the one before it says that the call is at the head of its stream,
// the one after it that it has ended. Calls of one communicator run in the order they were made, so
// only the oldest is looked at. Events are made when the most calls so far are in flight, and
// reused. One thread makes calls, another one watches.
class CallsInFlight {
 public:
  explicit CallsInFlight(Device* device) : device_(device) {}

  struct Call {
    std::string what;
    absl::Duration limit;
    std::unique_ptr<Event> before;
    std::unique_ptr<Event> after;
    bool running = false;
    std::chrono::steady_clock::time_point since;  // if running
  };

  // Records the event before the call. The call is in flight from End on.
  absl::StatusOr<std::unique_ptr<Call>> Begin(const Stream& stream, std::string what,
                                              absl::Duration limit);
  absl::Status End(const Stream& stream, std::unique_ptr<Call> call);

  // kDeadlineExceeded naming the oldest call if it has been running for its limit.
  absl::Status Watch();
  // The oldest call in flight, or "".
  std::string Oldest() const;

 private:
  void DropEnded();  // mutex_ held

  Device* const device_;
  mutable std::mutex mutex_;
  std::deque<std::unique_ptr<Call>> calls_;
  std::vector<std::unique_ptr<Call>> spare_;
};

}  // namespace zero
