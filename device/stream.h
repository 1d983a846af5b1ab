// An in-order queue of device work.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "device/operation.h"

namespace zero {

class Device;
class Event;

// A handle: const methods enqueue on the stream it names. Enqueuing is for one thread at a time;
// work of one stream runs in order, work of two streams is ordered by events only. The first
// failure of an operation sticks: later operations of that stream, and of streams that wait for
// it, are skipped. Waits keep the order even then, and events are reached: memory may be freed
// after an event whether or not the work before it failed. On a GPU a failure is one of all its
// streams, and calls return it as soon as it is known. Destruction drains the stream.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  virtual Device& device() const = 0;
  virtual const std::string& name() const = 0;
  // Unique in the process, never used again: a stream's address can be.
  uint64_t id() const { return id_; }
  // Expires when the stream is destroyed: all its work has run then.
  std::weak_ptr<const Stream> reference() const { return self_; }

  // Host streams: appends an operation. kUnimplemented elsewhere.
  virtual absl::Status Enqueue(Operation operation) const = 0;
  // The same for work that is ready at once. `name` is a literal.
  absl::Status Enqueue(const char* name, absl::AnyInvocable<absl::Status()> run) const {
    Operation operation;
    operation.name = name;
    operation.run = std::move(run);
    return Enqueue(std::move(operation));
  }

  // Work enqueued from here on starts after the point last recorded in `event`.
  // kFailedPrecondition if nothing was recorded: CUDA would silently not wait.
  virtual absl::Status Wait(const Event& event) const = 0;

  // Blocks the calling thread until all work enqueued so far has run, and returns the first
  // failure. Counted in Device::host_waits unless nothing was left to run.
  virtual absl::Status Synchronize() const = 0;

  // The first failure of an operation that has run. Never blocks.
  virtual absl::Status Health() const = 0;

 protected:
  Stream();

 private:
  const uint64_t id_;
  const std::shared_ptr<const Stream> self_{this, [](const Stream*) {}};  // owns nothing
};

}  // namespace zero
