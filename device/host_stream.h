// Streams and events of the host device, on the stream engine.
#pragma once

#include <memory>
#include <string>

#include "device/event.h"
#include "device/scheduler.h"
#include "device/stream.h"

namespace zero {

class HostStream : public Stream {
 public:
  HostStream(Device* device, std::string name, std::unique_ptr<OperationQueue> queue,
             const Scheduler* scheduler, std::atomic<int64_t>* host_waits);

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
  const Scheduler* const scheduler_;
  std::atomic<int64_t>* const host_waits_;
};

class HostEvent : public Event {
 public:
  // One recording. A wait holds the point that was recorded when it was enqueued.
  struct Point : Gate {
    bool reached = false;  // with mutex held
    absl::Status status;   // the stream's failure at this point
    void Reach(const absl::Status& failure);
  };

  explicit HostEvent(const Scheduler* scheduler, std::atomic<int64_t>* host_waits)
      : scheduler_(scheduler), host_waits_(host_waits) {}

  absl::Status Record(const Stream& stream) override;
  // The operation that reaches the event's new point.
  Operation NewPoint();
  bool recorded() const override { return point_ != nullptr; }
  bool Reached() const override;
  absl::Status Synchronize(absl::Duration timeout) const override;
  const std::shared_ptr<Point>& point() const { return point_; }

 private:
  const Scheduler* const scheduler_;
  std::atomic<int64_t>* const host_waits_;
  std::shared_ptr<Point> point_;
};

}  // namespace zero
