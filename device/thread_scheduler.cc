#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "device/run_operation.h"
#include "device/scheduler.h"

namespace zero {
namespace {

using Clock = std::chrono::steady_clock;

// Waking a thread that sleeps costs some 20 us, ranks that meet wait for each other twice a call,
// and mostly for less: a stream asks this long, offering its processor to whoever has work, before
// it sleeps.
constexpr std::chrono::microseconds kPolling(50);

// Whether the operation became ready soon.
bool Poll(Operation& operation, Clock::time_point until) {
  do {
    {
      // Not worth a sleep of its own, if somebody else looks or changes something.
      std::unique_lock<std::mutex> lock(operation.gate->mutex, std::try_to_lock);
      if (lock.owns_lock() && operation.ready()) return true;
    }
    sched_yield();
  } while (Clock::now() < until);
  return false;
}

// Waits at the operation's gate until it is ready.
void WaitReady(Operation& operation) {
  const Clock::time_point start = Clock::now();
  if (Poll(operation, start + kPolling)) return;
  Gate& gate = *operation.gate;
  std::unique_lock<std::mutex> lock(gate.mutex);
  const auto ready = [&] { return operation.ready(); };
  if (operation.expire && operation.deadline <= kLongestWait) {
    const auto until = start + absl::ToChronoNanoseconds(operation.deadline);
    if (gate.changed.wait_until(lock, until, ready)) return;
    lock.unlock();
    operation.expire();
    lock.lock();
  }
  gate.changed.wait(lock, ready);
}

}  // namespace

// A list that one thread appends to and the stream's thread takes from. Nothing flows back: neither
// Push nor Health of a healthy stream synchronises the caller with operations that have run.
// Otherwise the thread that feeds two streams would order them by chance, and ThreadSanitizer would
// miss an event that was forgotten.
class ThreadScheduler::Queue : public OperationQueue {
 public:
  Queue(ThreadScheduler* scheduler, std::string name, OperationHook hook)
      : scheduler_(scheduler), name_(std::move(name)), hook_(std::move(hook)) {
    sem_init(&pushed_, /*pshared=*/0, 0);
    thread_ = std::thread([this] { Work(); });
  }

  ~Queue() override {
    Append(new Node);
    thread_.join();
    sem_destroy(&pushed_);
  }

  void Push(Operation operation) override {
    Node* const node = new Node;
    node->operation = std::move(operation);
    node->last = false;
    Append(node);
  }

  absl::Status Health() const override {
    return failed_.load(std::memory_order_acquire) ? failure_ : absl::OkStatus();
  }

 private:
  struct Node {
    Operation operation;
    bool last = true;  // nothing to run: the end of the stream
    Node* next = nullptr;
  };

  void Append(Node* node) {
    node->next = newest_.load(std::memory_order_relaxed);
    while (!newest_.compare_exchange_weak(node->next, node, std::memory_order_release,
                                          std::memory_order_relaxed)) {
    }
    sem_post(&pushed_);
  }

  // Waits for the next in order.
  std::unique_ptr<Node> Take() {
    while (sem_wait(&pushed_) != 0) {  // interrupted by a signal
    }
    if (taken_ == nullptr) {
      // Appended newest first.
      Node* node = newest_.exchange(nullptr, std::memory_order_acquire);
      while (node != nullptr) {
        Node* const older = node->next;
        node->next = taken_;
        taken_ = node;
        node = older;
      }
    }
    std::unique_ptr<Node> first(taken_);
    taken_ = first->next;
    return first;
  }

  void Work() {
    pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
    while (true) {
      std::unique_ptr<Node> node = Take();
      if (node->last) return;
      const absl::Status status =
          failure_.ok() ? Run(node->operation) : Skip(node->operation, failure_);
      // What the operation holds is released before anybody learns that it has run.
      node.reset();
      scheduler_->progress_.fetch_add(1, std::memory_order_relaxed);
      if (failure_.ok() && !status.ok()) {
        failure_ = status;
        failed_.store(true, std::memory_order_release);
      }
    }
  }

  absl::Status Run(Operation& operation) {
    if (operation.ready) WaitReady(operation);
    return RunOperation(operation, name_, hook_);
  }

  static absl::Status Skip(Operation& operation, const absl::Status& reason) {
    if (operation.ready && operation.wait_if_skipped) WaitReady(operation);
    return SkipOperation(operation, reason);
  }

  ThreadScheduler* const scheduler_;
  const std::string name_;
  const OperationHook hook_;
  sem_t pushed_;  // counts what was appended and not taken
  std::atomic<Node*> newest_{nullptr};
  Node* taken_ = nullptr;  // oldest first; of the stream's thread
  absl::Status failure_;   // written once, before failed_
  std::atomic<bool> failed_{false};
  std::thread thread_;
};

std::unique_ptr<OperationQueue> ThreadScheduler::CreateQueue(const std::string& name,
                                                             OperationHook hook) {
  return std::make_unique<Queue>(this, name, std::move(hook));
}

absl::Status ThreadScheduler::Await(Gate& gate, absl::FunctionRef<bool()> ready,
                                    absl::Duration timeout) {
  std::unique_lock<std::mutex> lock(gate.mutex);
  if (timeout > kLongestWait) {
    gate.changed.wait(lock, ready);
    return absl::OkStatus();
  }
  int64_t seen = -1;
  while (seen != progress()) {
    seen = progress();
    if (gate.changed.wait_for(lock, absl::ToChronoNanoseconds(timeout), ready)) {
      return absl::OkStatus();
    }
  }
  return NoProgressError(timeout);
}

void ThreadScheduler::Yield() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

}  // namespace zero
