// Collectives that a device's streams hold and have not finished, and since when they run.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "device/device.h"

namespace zero {

// Where a rank is in its group's calls, which every rank makes in the same order.
struct Standing {
  int64_t called = 0;   // made so far
  int64_t begun = 0;    // of these, those that its streams had come to when it was last looked at
  std::string last;     // the newest; empty: none
  std::string running;  // the newest that has begun, unless it has ended
};

// A call that has not ended within its limit.
struct LateCall {
  int64_t index = 0;  // calls before it
  std::string what;
  absl::Duration limit;
  bool in_stream = true;  // false: the host still waits for the others to make it
};

// A call is between two events: the one before it says that the call is at the head of its stream,
// the one after it that it has ended. Calls of one communicator run in the order they were made, so
// only the oldest is looked at. Events are made when the most calls so far are in flight, and
// reused. One thread makes calls, another one watches, and any may ask for the standing: to ask the
// device may take long, so that is done without the record's mutex.
class CallsInFlight {
 public:
  explicit CallsInFlight(Device* device) : device_(device) {}

  struct Call {
    int64_t index = 0;
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

  // A call that is not in a stream: it has begun and ended when End is called.
  void BeginOnHost(std::string what);
  void EndOnHost();

  // The oldest call if it has been running for its limit.
  std::optional<LateCall> Watch();
  // The oldest call in flight, or "".
  std::string Oldest() const;
  // Without a look at the device, and without waiting for one. Any thread.
  Standing standing() const;
  // The newest call, which the host waited for in vain.
  LateCall Newest(absl::Duration limit) const;

 private:
  int64_t Count(const std::string& what);
  std::unique_ptr<Call> TakeSpare();
  Call* Front() const;
  void DropEnded();  // looking_ held, mutex_ not

  Device* const device_;
  // Held by who looks at the oldest call, which stays where it is meanwhile. Before mutex_.
  std::mutex looking_;
  mutable std::mutex mutex_;  // of all below; held for moments
  int64_t called_ = 0;
  int64_t ended_ = 0;
  std::string last_;
  std::deque<std::unique_ptr<Call>> calls_;
  std::vector<std::unique_ptr<Call>> spare_;
};

}  // namespace zero
