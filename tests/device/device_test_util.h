// What the tests of devices and streams share. The contract suite runs on the implementation that
// its program links: see Implementation.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/host_device.h"
#include "tests/catch.h"

namespace zero::test {

// Holds operations back until the test opens it.
class Door {
 public:
  void Open() {
    {
      std::lock_guard<std::mutex> lock(gate_->mutex);
      open_ = true;
    }
    gate_->changed.notify_all();
  }
  void Pass() {
    std::unique_lock<std::mutex> lock(gate_->mutex);
    gate_->changed.wait(lock, [this] { return open_; });
  }
  // An operation that waits at the door.
  absl::Status Block(const Stream& stream);
  // For streams that run operations: is ready when the door is open.
  Operation Blocked() {
    Operation operation;
    operation.name = "blocked";
    operation.gate = gate_;
    operation.ready = [this] { return open_; };
    return operation;
  }

 private:
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  bool open_ = false;  // with the gate's mutex held
};

// How the contract suite makes and uses one kind of device. Each program of the suite defines
// Tested().
struct Implementation {
  // What has to live around a device: null where nothing has.
  std::function<std::shared_ptr<void>()> begin;
  std::function<std::unique_ptr<Device>(int64_t capacity)> make;
  // Appends work of the host to a stream.
  std::function<absl::Status(const Stream&, std::function<void()>)> run;
  std::function<absl::Status(const Stream&, Door&)> block;
  // Appends an operation that fails; the failure's text contains `failure`.
  std::function<absl::Status(const Stream&)> fail;
  std::string failure;
  // Runs each on a thread of its own and returns when all have ended. Null: as RunThreads does.
  std::function<void(Device&, const std::vector<std::function<void()>>&)> run_threads = nullptr;
};
const Implementation& Tested();

inline absl::Status Door::Block(const Stream& stream) { return Tested().block(stream, *this); }

// A device of the implementation under test. One at a time.
class TestDevice {
 public:
  explicit TestDevice(int64_t capacity = -1) : around_(Tested().begin()) {
    device_ = Tested().make(capacity);
  }
  Device& operator*() const { return *device_; }
  Device* operator->() const { return device_.get(); }

 private:
  const std::shared_ptr<void> around_;
  std::unique_ptr<Device> device_;
};

// Threads that use the device and wait for one another through it only.
inline void RunThreads(const TestDevice& device, const std::vector<std::function<void()>>& bodies) {
  if (Tested().run_threads) {
    Tested().run_threads(*device, bodies);
    return;
  }
  std::vector<std::thread> threads;
  for (const std::function<void()>& body : bodies) threads.emplace_back(body);
  for (std::thread& thread : threads) thread.join();
}

// Enqueues `work` in a stream of the host.
inline absl::Status RunOnHost(const Stream& stream, std::function<void()> work) {
  return stream.Enqueue("test", [work = std::move(work)] {
    work();
    return absl::OkStatus();
  });
}

// Enqueues `work`.
inline absl::Status Run(const Stream& stream, std::function<void()> work) {
  return Tested().run(stream, std::move(work));
}

inline std::unique_ptr<Stream> NewStream(Device& device, const std::string& name) {
  absl::StatusOr<std::unique_ptr<Stream>> stream = device.CreateStream(name);
  REQUIRE_OK(stream.status());
  return *std::move(stream);
}
inline std::unique_ptr<Stream> NewStream(const TestDevice& device, const std::string& name) {
  return NewStream(*device, name);
}

inline std::unique_ptr<Stream> NewHostStream(Device& device, const std::string& name) {
  absl::StatusOr<std::unique_ptr<Stream>> stream = device.CreateHostStream(name);
  REQUIRE_OK(stream.status());
  return *std::move(stream);
}
inline std::unique_ptr<Stream> NewHostStream(const TestDevice& device, const std::string& name) {
  return NewHostStream(*device, name);
}

inline std::unique_ptr<Event> NewEvent(Device& device) {
  absl::StatusOr<std::unique_ptr<Event>> event = device.CreateEvent();
  REQUIRE_OK(event.status());
  return *std::move(event);
}
inline std::unique_ptr<Event> NewEvent(const TestDevice& device) { return NewEvent(*device); }

inline Buffer NewBuffer(const TestDevice& device, int64_t bytes) {
  absl::StatusOr<Buffer> buffer = device->Allocate(bytes, MemoryCategory::kOther, "test");
  REQUIRE_OK(buffer.status());
  return *std::move(buffer);
}

inline Buffer NewHostBuffer(const TestDevice& device, int64_t bytes) {
  absl::StatusOr<Buffer> buffer = device->AllocateHost(bytes, MemoryCategory::kHostStaging, "test");
  REQUIRE_OK(buffer.status());
  return *std::move(buffer);
}

inline MemoryUse UseOf(const Device& device, MemoryCategory category) {
  return device.memory()[static_cast<int>(category)];
}

// What `bytes` of device memory at `data` hold, after what was enqueued on `stream` so far.
inline std::vector<uint8_t> ReadBack(const TestDevice& device, const Stream& stream,
                                     const void* data, int64_t bytes) {
  const Buffer host = NewHostBuffer(device, bytes);
  REQUIRE_OK(device->Copy(stream, host.data(), data, bytes));
  REQUIRE_OK(stream.Synchronize());
  return std::vector<uint8_t>(host.as<uint8_t>(), host.as<uint8_t>() + bytes);
}

inline void Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

}  // namespace zero::test
