#include "offload/disk_lane.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/device.h"
#include "device/status.h"

namespace zero {

absl::StatusOr<std::unique_ptr<DiskLane>> DiskLane::Create(std::unique_ptr<Stream> stream,
                                                           const DiskFile* file, Options options) {
  if (stream->device().kind() != DeviceKind::kHost) {
    return absl::InvalidArgumentError(absl::StrCat("DiskLane: stream '", stream->name(),
                                                   "' is not of the host; see CreateHostStream"));
  }
  ZERO_ASSIGN_OR_RETURN(std::unique_ptr<DiskQueue> queue, DiskQueue::Create(options.queue));
  return std::unique_ptr<DiskLane>(
      new DiskLane(std::move(stream), file, std::move(queue), std::move(options.on_failure)));
}

DiskLane::DiskLane(std::unique_ptr<Stream> stream, const DiskFile* file,
                   std::unique_ptr<DiskQueue> queue,
                   std::function<void(const absl::Status&)> on_failure)
    : file_(file),
      queue_(std::move(queue)),
      on_failure_(std::move(on_failure)),
      stream_(std::move(stream)) {}

DiskLane::~DiskLane() = default;

absl::Status DiskLane::EnqueueRead(int64_t offset, void* to, int64_t bytes) {
  return EnqueueRead({{offset, to, bytes}});
}

absl::Status DiskLane::EnqueueRead(std::vector<DiskRange> ranges) {
  return Enqueue(/*writes=*/false, std::move(ranges));
}

absl::Status DiskLane::EnqueueWrite(int64_t offset, const void* from, int64_t bytes) {
  return EnqueueWrite({{offset, const_cast<void*>(from), bytes}});
}

absl::Status DiskLane::EnqueueWrite(std::vector<DiskRange> ranges) {
  return Enqueue(/*writes=*/true, std::move(ranges));
}

absl::Status DiskLane::Enqueue(bool writes, std::vector<DiskRange> ranges) {
  Operation operation;
  operation.name = writes ? "disk write" : "disk read";
  operation.run = [this, writes, moved = std::move(ranges)] {
    absl::Status status = Transfer(writes, moved);
    if (!status.ok()) Fail(status);
    return status;
  };
  operation.skip = [this](const absl::Status& failure) { Fail(failure); };
  return stream_->Enqueue(std::move(operation));
}

absl::Status DiskLane::Transfer(bool writes, const std::vector<DiskRange>& ranges) {
  const auto start = std::chrono::steady_clock::now();
  absl::Status status = writes ? queue_->Write(*file_, ranges) : queue_->Read(*file_, ranges);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  int64_t bytes = 0;
  for (const DiskRange& range : ranges) bytes += range.bytes;
  const std::lock_guard<std::mutex> lock(mutex_);
  traffic_.busy_seconds += took.count();
  if (status.ok()) (writes ? traffic_.bytes_written : traffic_.bytes_read) += bytes;
  // Whether anything is lost, or there is only no room, is for whoever knows what was moved.
  return status.ok() ? status : absl::UnavailableError(status.message());
}

void DiskLane::Fail(const absl::Status& failure) {
  if (!std::exchange(failed_, true) && on_failure_) on_failure_(failure);
}

DiskTraffic DiskLane::traffic() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  DiskTraffic traffic = traffic_;
  traffic.bytes_copied = queue_->copied_bytes();
  return traffic;
}

}  // namespace zero
