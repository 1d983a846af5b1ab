// A stream whose operations are transfers between memory of the host and a file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/stream.h"
#include "io/disk_file.h"
#include "io/disk_queue.h"

namespace zero {

// What the transfers of a lane have done so far.
struct DiskTraffic {
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t bytes_copied = 0;  // of them: see DiskQueue::copied_bytes
  double busy_seconds = 0;   // in transfers, failed ones included
};

// Owns a host stream and a queue of requests. Each Enqueue appends one operation, which blocks the
// stream, and nothing else, until its ranges are transferred; order towards other streams is by
// events, as for any stream. Enqueuing is for one thread at a time.
class DiskLane {
 public:
  struct Options {
    DiskQueue::Options queue;
    // Called once, on the stream, with the first failure, before anything behind it in the stream
    // is reached: a transfer that failed, or what made one be skipped. May be null.
    std::function<void(const absl::Status&)> on_failure;
  };
  // `stream` comes from Device::CreateHostStream. `file` outlives the lane.
  static absl::StatusOr<std::unique_ptr<DiskLane>> Create(std::unique_ptr<Stream> stream,
                                                          const DiskFile* file, Options options);
  ~DiskLane();  // after all that was enqueued
  DiskLane(const DiskLane&) = delete;
  DiskLane& operator=(const DiskLane&) = delete;

  const Stream& stream() const { return *stream_; }

  // The memory must live until `stream` has run it, and nobody else may touch it meanwhile.
  // Errors of ranges and disk come with the stream: see DiskQueue.
  absl::Status EnqueueRead(int64_t offset, void* to, int64_t bytes);
  absl::Status EnqueueRead(std::vector<DiskRange> ranges);
  absl::Status EnqueueWrite(int64_t offset, const void* from, int64_t bytes);
  absl::Status EnqueueWrite(std::vector<DiskRange> ranges);

  // From any thread.
  DiskTraffic traffic() const;
  // See DiskQueue.
  DiskWay way() const { return queue_->way(); }
  std::string note() const { return queue_->note(); }

 private:
  DiskLane(std::unique_ptr<Stream> stream, const DiskFile* file, std::unique_ptr<DiskQueue> queue,
           std::function<void(const absl::Status&)> on_failure);
  absl::Status Enqueue(bool writes, std::vector<DiskRange> ranges);
  absl::Status Transfer(bool writes, const std::vector<DiskRange>& ranges);
  void Fail(const absl::Status& failure);

  const DiskFile* const file_;
  const std::unique_ptr<DiskQueue> queue_;  // of the stream
  std::function<void(const absl::Status&)> on_failure_;
  bool failed_ = false;  // of the stream
  mutable std::mutex mutex_;
  DiskTraffic traffic_;  // guarded by it
  // The last one, so that it is drained while what its operations use is there.
  const std::unique_ptr<Stream> stream_;
};

}  // namespace zero
