#include "device/host_stream.h"

#include <atomic>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/device.h"
#include "device/status.h"

namespace zero {
namespace {

uint64_t NextStreamId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

absl::StatusOr<std::unique_ptr<OperationQueue>> NewQueue(Scheduler* scheduler,
                                                         const std::string& name,
                                                         OperationHook hook) {
  try {
    return scheduler->CreateQueue(name, std::move(hook));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("stream '", name, "': no thread for it: ", error.what()));
  }
}

Stream::Stream() : id_(NextStreamId()) {}

HostStream::HostStream(Device* device, std::string name, std::unique_ptr<OperationQueue> queue,
                       Scheduler* scheduler, std::atomic<int64_t>* host_waits)
    : device_(device),
      name_(std::move(name)),
      queue_(std::move(queue)),
      scheduler_(scheduler),
      host_waits_(host_waits) {}

absl::Status HostStream::Enqueue(Operation operation) const {
  queue_->Push(std::move(operation));
  return absl::OkStatus();
}

absl::Status HostStream::Wait(const Event& event) const {
  const auto* host_event = dynamic_cast<const HostEvent*>(&event);
  if (host_event == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream '", name_, "' cannot wait for an event of another kind of device"));
  }
  if (!host_event->recorded()) {
    return absl::FailedPreconditionError(
        absl::StrCat("stream '", name_, "' would wait for an event that was never recorded"));
  }
  std::shared_ptr<HostEvent::Point> point = host_event->point();
  Operation wait;
  wait.name = "wait";
  wait.gate = point;
  wait.ready = [raw = point.get()] { return raw->reached; };
  // A failed stream still keeps the order: an event recorded later says that memory is free of all
  // that was waited for.
  wait.wait_if_skipped = true;
  wait.run = [point] {
    std::lock_guard<std::mutex> lock(point->mutex);
    return point->status;
  };
  return Enqueue(std::move(wait));
}

absl::Status HostStream::Synchronize() const {
  // Not through Enqueue: whatever goes wrong there, memory is safe after this.
  HostEvent event(scheduler_, host_waits_);
  queue_->Push(event.NewPoint(name_));
  return event.Synchronize(absl::InfiniteDuration());
}

std::string HostEvent::Point::Describe() const {
  return absl::StrCat("an event of stream '", stream_, "'");
}

void HostEvent::Point::Reach(const absl::Status& failure) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    status = failure;
    reached = true;
  }
  changed.notify_all();
}

absl::Status HostEvent::Record(const Stream& stream) {
  std::shared_ptr<Point> before = std::move(point_);
  const absl::Status enqueued = stream.Enqueue(NewPoint(stream.name()));
  if (!enqueued.ok()) point_ = std::move(before);
  return enqueued;
}

Operation HostEvent::NewPoint(const std::string& stream) {
  auto point = std::make_shared<Point>(stream);
  Operation record;
  record.name = "record";
  record.run = [point] {
    point->Reach(absl::OkStatus());
    return absl::OkStatus();
  };
  record.skip = [point](const absl::Status& failure) { point->Reach(failure); };
  // Moved: dropping a reference here would synchronise the caller with the stream by chance, and
  // ThreadSanitizer would miss an event that was forgotten.
  point_ = std::move(point);
  return record;
}

bool HostEvent::Reached() const {
  if (point_ == nullptr) return false;
  std::lock_guard<std::mutex> lock(point_->mutex);
  return point_->reached;
}

absl::Status HostEvent::Synchronize(absl::Duration timeout) const {
  const std::shared_ptr<Point> point = point_;
  if (point == nullptr) {
    return absl::FailedPreconditionError("waiting for an event that was never recorded");
  }
  {
    std::lock_guard<std::mutex> lock(point->mutex);
    if (point->reached) return point->status;
  }
  host_waits_->fetch_add(1, std::memory_order_relaxed);
  ZERO_RETURN_IF_ERROR(scheduler_->Await(
      *point, [&] { return point->reached; }, timeout));
  std::lock_guard<std::mutex> lock(point->mutex);
  return point->status;
}

}  // namespace zero
