// A thread that does jobs for another, one after the other.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/status/status.h"

namespace zero {

// For one thread, which adds jobs and waits for them. The thread behind it is made with the first
// job, and ends with this object once it has done them all.
class Worker {
 public:
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  // Does `job` after those before it. Where the system has no thread to give it has been done when
  // this returns.
  void Add(std::function<absl::Status()> job);
  // Waits until at most `left` jobs have not ended. The first error of a job since the last Wait;
  // jobs after one that fails are done all the same.
  absl::Status Wait(size_t left = 0);

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<absl::Status()>> jobs_;  // the first is being done
  absl::Status status_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace zero
