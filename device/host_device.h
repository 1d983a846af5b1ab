// The host as a device: ordinary memory, streams that are threads.
#pragma once

#include <memory>
#include <string>

#include "device/device.h"
#include "device/host_link.h"
#include "device/scheduler.h"
#include "device/thread_pool.h"

namespace zero {

class HostDevice : public Device {
 public:
  struct Options {
    ThreadPool* pool = nullptr;  // for kernels; null: the stream's own thread. Outlives the device.
    int64_t capacity = -1;       // bytes; negative: no limit
    OperationHook hook = nullptr;  // see scheduler.h
    // Runs the streams; null: a ThreadScheduler of its own. The devices of several ranks may share
    // one.
    std::shared_ptr<Scheduler> scheduler = nullptr;
    // As if the device were at the end of a link: a copy between memory of AllocateHost and other
    // memory lasts as long as its bytes take there at least, beside others of that direction; the
    // two directions do not disturb each other. Bytes per second; 0: as fast as memory. Time is the
    // scheduler's: where that is virtual, streams do not share the link.
    struct Link {
      double to_device = 0;
      double from_device = 0;
    };
    Link link = {};
  };
  HostDevice() : HostDevice(Options()) {}
  explicit HostDevice(Options options);

  DeviceKind kind() const override { return DeviceKind::kHost; }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(const std::string& name) override;
  absl::StatusOr<std::unique_ptr<Stream>> CreateHostStream(const std::string& name) override {
    return CreateStream(name);
  }
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override;
  absl::Status Copy(const Stream& stream, void* to, const void* from, int64_t bytes) override;
  absl::Status Fill(const Stream& stream, void* to, uint8_t value, int64_t bytes) override;
  void Yield() override { options_.scheduler->Yield(); }

  // The pool, or null. Kernels reach it through HostPool(stream).
  ThreadPool* pool() const { return options_.pool; }

 protected:
  absl::StatusOr<void*> AllocateBytes(int64_t bytes) override;
  void Free(void* data, int64_t bytes) override;
  absl::StatusOr<void*> AllocateHostBytes(int64_t bytes, HostMemory) override {
    return AllocateBytes(bytes);
  }
  void FreeHost(void* data, int64_t bytes) override { Free(data, bytes); }

 private:
  HostLink* LinkFor(Way way);  // null: a copy is as fast as memory

  const Options options_;  // with a scheduler
  HostLink to_device_;
  HostLink from_device_;
};

// The pool of the host device that `stream` belongs to; null if it has none.
ThreadPool* HostPool(const Stream& stream);

// ParallelFor on `pool`, or body(0, n) on the calling thread when there is none.
void ParallelFor(ThreadPool* pool, int64_t n, int64_t grain,
                 absl::FunctionRef<void(int64_t, int64_t)> body);

}  // namespace zero
