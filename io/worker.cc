#include "io/worker.h"

#include <system_error>
#include <utility>

namespace zero {

Worker::~Worker() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Worker::Add(std::function<absl::Status()> job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { Work(); });
    } catch (const std::system_error&) {
      status_.Update(job());
      return;
    }
  }
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

absl::Status Worker::Wait(size_t left) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.size() <= left; });
  return std::exchange(status_, absl::OkStatus());
}

void Worker::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !jobs_.empty() || ends_; });
    if (jobs_.empty()) return;
    // Stays where it is while others are added behind it.
    const std::function<absl::Status()>& job = jobs_.front();
    lock.unlock();
    absl::Status status = job();
    lock.lock();
    status_.Update(std::move(status));
    jobs_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace zero
