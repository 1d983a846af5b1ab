#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/scheduler.h"

namespace zero {
namespace {

// A trainer's operation may throw; nothing may leave the stream's thread.
absl::Status RunGuarded(Operation& operation) {
  try {
    return operation.run ? operation.run() : absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrCat("operation '", operation.name, "' threw: ", error.what()));
  } catch (...) {
    return absl::InternalError(absl::StrCat("operation '", operation.name, "' threw"));
  }
}

// Waits at the operation's gate until it is ready.
void WaitReady(Operation& operation) {
  Gate& gate = *operation.gate;
  std::unique_lock<std::mutex> lock(gate.mutex);
  if (operation.deadline == absl::InfiniteDuration()) {
    gate.changed.wait(lock, [&] { return operation.ready(); });
    return;
  }
  const auto until =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(operation.deadline);
  if (gate.changed.wait_until(lock, until, [&] { return operation.ready(); })) return;
  lock.unlock();
  operation.expire();
  lock.lock();
  gate.changed.wait(lock, [&] { return operation.ready(); });
}

}  // namespace

class ThreadScheduler::Queue : public OperationQueue {
 public:
  Queue(ThreadScheduler* scheduler, std::string name, OperationHook hook)
      : scheduler_(scheduler), name_(std::move(name)), hook_(std::move(hook)) {
    thread_ = std::thread([this] { Work(); });
  }

  ~Queue() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    pushed_.notify_one();
    thread_.join();
  }

  void Push(Operation operation) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      operations_.push_back(std::move(operation));
    }
    pushed_.notify_one();
  }

  absl::Status Health() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    return failure_;
  }

 private:
  void Work() {
    pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      pushed_.wait(lock, [this] { return stop_ || !operations_.empty(); });
      if (operations_.empty()) return;
      Operation operation = std::move(operations_.front());
      operations_.pop_front();
      const absl::Status before = failure_;
      lock.unlock();
      const absl::Status status = before.ok() ? Run(operation) : Skip(operation, before);
      // What the operation holds is released before anybody learns that it has run.
      operation = Operation();
      scheduler_->progress_.fetch_add(1, std::memory_order_relaxed);
      lock.lock();
      if (failure_.ok() && !status.ok()) failure_ = status;
    }
  }

  absl::Status Run(Operation& operation) {
    if (operation.ready) WaitReady(operation);
    if (hook_) {
      const absl::Status injected = hook_(name_, operation.name);
      if (!injected.ok()) return Skip(operation, injected);
    }
    return RunGuarded(operation);
  }

  static absl::Status Skip(Operation& operation, const absl::Status& reason) {
    if (operation.skip) operation.skip(reason);
    return reason;
  }

  ThreadScheduler* const scheduler_;
  const std::string name_;
  const OperationHook hook_;
  mutable std::mutex mutex_;
  std::condition_variable pushed_;
  std::deque<Operation> operations_;
  absl::Status failure_;
  bool stop_ = false;
  std::thread thread_;
};

std::unique_ptr<OperationQueue> ThreadScheduler::CreateQueue(const std::string& name,
                                                             OperationHook hook) {
  return std::make_unique<Queue>(this, name, std::move(hook));
}

}  // namespace zero
