// The one thread of a process that looks after its groups.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace zero {

// What the watchdog looks at, every few milliseconds.
class Watched {
 public:
  virtual ~Watched() = default;
  // On the watchdog's thread. Must not call Add or Remove, nor wait for a device or another rank.
  virtual void Check() = 0;
};

// Its thread runs while there is something to watch.
class Watchdog {
 public:
  static Watchdog& OfProcess();

  // Throws std::system_error, with nothing changed, when the system gives no thread.
  void Add(Watched* watched);
  // When it returns, Check of `watched` is not running and will not be called. Not from Check.
  void Remove(Watched* watched);

 private:
  void Work();

  std::mutex lifecycle_;  // of the thread; before mutex_
  std::mutex mutex_;      // of what follows; held while checking
  std::condition_variable changed_;
  std::vector<Watched*> watched_;
  std::thread thread_;  // guarded by lifecycle_
};

}  // namespace zero
