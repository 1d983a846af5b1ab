// Streams and events of the host device, on the stream engine.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "device/event.h"
#include "device/scheduler.h"
#include "device/stream.h"

namespace zero {

// A queue for the stream `name`. kResourceExhausted when the system gives no more threads.
absl::StatusOr<std::unique_ptr<OperationQueue>> NewQueue(Scheduler* scheduler,
                                                         const std::string& name,
                                                         OperationHook hook);

class HostStream : public Stream {
 public:
  HostStream(Device* device, std::string name, std::unique_ptr<OperationQueue> queue,
             Scheduler* scheduler, std::atomic<int64_t>* host_waits);

  Device& device() const override { return *device_; }
  const std::string& name() const override { return name_; }
  absl::Status Enqueue(Operation operation) const override;
  absl::Status Wait(const Event& event) const override;
  absl::Status Synchronize() const override;
  absl::Status Health() const override { return queue_->Health(); }

 private:
  Device* const device_;
  const std::string name_;
  const std::unique_ptr<OperationQueue> queue_;
  Scheduler* const scheduler_;
  std::atomic<int64_t>* const host_waits_;
};

class HostEvent : public Event {
 public:
  // One recording. A wait holds the point that was recorded when it was enqueued.
  class Point : public Gate {
   public:
    explicit Point(std::string stream) : stream_(std::move(stream)) {}
    std::string Describe() const override;
    void Reach(const absl::Status& failure);

    bool reached = false;  // with mutex held
    absl::Status status;   // the stream's failure at this point

   private:
    const std::string stream_;  // where it was recorded
  };

  HostEvent(Scheduler* scheduler, std::atomic<int64_t>* host_waits)
      : scheduler_(scheduler), host_waits_(host_waits) {}

  absl::Status Record(const Stream& stream) override;
  // The operation that reaches the event's new point.
  Operation NewPoint(const std::string& stream);
  bool recorded() const override { return point_ != nullptr; }
  bool Reached() const override;
  absl::Status Synchronize(absl::Duration timeout) const override;
  const std::shared_ptr<Point>& point() const { return point_; }

 private:
  Scheduler* const scheduler_;
  std::atomic<int64_t>* const host_waits_;
  std::shared_ptr<Point> point_;
};

}  // namespace zero
