// A point in a stream's work.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace zero {

class Stream;

// Recording again moves the point; waits enqueued before keep the earlier one.
class Event {
 public:
  virtual ~Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  virtual absl::Status Record(const Stream& stream) = 0;
  virtual bool recorded() const = 0;
  // True when the work before the recorded point, and all that it waited for, has run or was
  // skipped. False if never recorded.
  // Never blocks; any thread, as long as none records.
  virtual bool Reached() const = 0;
  // Blocks until Reached, counted in Device::host_waits if it was not. The stream's failure if it
  // had one at that point; kDeadlineExceeded when `timeout` passes and no stream of the device
  // finishes an operation (on a GPU, which does not tell: when `timeout` passes).
  // kFailedPrecondition if never recorded.
  virtual absl::Status Synchronize(absl::Duration timeout) const = 0;

 protected:
  Event() = default;
};

}  // namespace zero
