// What the tests of streams share.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "device/host_device.h"
#include "tests/catch.h"

namespace zero::test {

// Holds operations back until the test opens it.
class Door {
 public:
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }
  // An operation that waits at the door.
  absl::Status Block(const Stream& stream) {
    return stream.Enqueue("blocked", [this] {
      Pass();
      return absl::OkStatus();
    });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

inline std::unique_ptr<Stream> NewStream(Device& device, const std::string& name) {
  absl::StatusOr<std::unique_ptr<Stream>> stream = device.CreateStream(name);
  REQUIRE_OK(stream.status());
  return *std::move(stream);
}

inline std::unique_ptr<Event> NewEvent(Device& device) {
  absl::StatusOr<std::unique_ptr<Event>> event = device.CreateEvent();
  REQUIRE_OK(event.status());
  return *std::move(event);
}

inline void Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

}  // namespace zero::test
