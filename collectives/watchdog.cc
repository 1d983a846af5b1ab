#include "collectives/watchdog.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

namespace zero {
namespace {

// Short against any deadline, long against what a check costs.
constexpr std::chrono::milliseconds kPeriod{5};

}  // namespace

Watchdog& Watchdog::OfProcess() {
  static Watchdog* const watchdog = new Watchdog;  // never destroyed: no order at exit
  return *watchdog;
}

void Watchdog::Add(Watched* watched) {
  std::lock_guard<std::mutex> lifecycle(lifecycle_);
  std::lock_guard<std::mutex> lock(mutex_);
  watched_.push_back(watched);
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([this] { Work(); });
  } catch (...) {
    watched_.pop_back();
    throw;
  }
}

void Watchdog::Remove(Watched* watched) {
  std::lock_guard<std::mutex> lifecycle(lifecycle_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    watched_.erase(std::remove(watched_.begin(), watched_.end(), watched), watched_.end());
    if (!watched_.empty()) return;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::Work() {
  pthread_setname_np(pthread_self(), "watchdog");
  std::unique_lock<std::mutex> lock(mutex_);
  while (!watched_.empty()) {
    for (Watched* watched : watched_) watched->Check();
    changed_.wait_for(lock, kPeriod);
  }
}

}  // namespace zero
