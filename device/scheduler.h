// The host stream engine: queues of operations, who runs them, and how the host waits for them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "device/operation.h"

namespace zero {

// Called before each operation that is about to run, with the names of stream and operation. An
// error is taken for the operation's own. The seam for delays and faults in tests.
using OperationHook = std::function<absl::Status(const std::string& stream, const char* operation)>;

// One stream's operations. Push is for one thread at a time, the rest for any.
class OperationQueue {
 public:
  virtual ~OperationQueue() = default;  // after everything pushed has run
  virtual void Push(Operation operation) = 0;
  virtual absl::Status Health() const = 0;
};

// Decides when the operations at the heads of the queues run.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual std::unique_ptr<OperationQueue> CreateQueue(const std::string& name,
                                                      OperationHook hook) = 0;
  // Whether operations last as long as their cost_us says, and not as long as they do.
  virtual bool virtual_time() const { return false; }
  // Operations that have run or were skipped, over all queues: tells progress from silence.
  virtual int64_t progress() const = 0;

  // Every wait of a host thread for streams is one of these two, so that a scheduler can drive the
  // streams, and other host threads, meanwhile.
  // Blocks the calling thread until `ready`, which is polled with gate.mutex held; the caller holds
  // no lock. Slow work is not silence: `timeout` starts again whenever some queue has got on; above
  // kLongestWait it never ends. kDeadlineExceeded when it has passed.
  virtual absl::Status Await(Gate& gate, absl::FunctionRef<bool()> ready,
                             absl::Duration timeout) = 0;
  // For a host thread that polls, between two polls.
  virtual void Yield() = 0;
};

// One thread a queue, started with it and joined by its destructor.
class ThreadScheduler : public Scheduler {
 public:
  std::unique_ptr<OperationQueue> CreateQueue(const std::string& name, OperationHook hook) override;
  int64_t progress() const override { return progress_.load(std::memory_order_relaxed); }
  absl::Status Await(Gate& gate, absl::FunctionRef<bool()> ready, absl::Duration timeout) override;
  void Yield() override;

 private:
  class Queue;
  std::atomic<int64_t> progress_{0};
};

}  // namespace zero
