// One thing at a time, in an order that a seed chooses: a scheduler for tests.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/scheduler.h"
#include "device/seeded_random.h"

namespace zero {

// Who goes on where several could. Even choices alone find few bugs.
enum class SeededOrder : uint8_t {
  kEven,           // each with the same chance
  kSticky,         // mostly the same one again
  kPriorities,     // the highest of random priorities; now and then the chosen one falls to the end
  kStarvedStream,  // one stream only when nothing else can
  kStarvedDriver,  // one driver, and the streams that it made, only when nothing else can
  kClock,          // what ends first in virtual time: models overlap. Not chosen by seeds
};

// Runs the operations of all its streams, and the host threads that drive them, one at a time; the
// seed chooses the next of those that can go on. The same seed gives the same run on any machine.
// Between an enqueue and the next, any ready operations may run, or other drivers.
//
// Host threads are the drivers of RunDrivers, or one other thread. They block in Await and Yield
// only (Event::Synchronize, Device::Yield), and hold no lock that another needs while they wait or
// enqueue; operations block nowhere, or everything stands still.
//
// Time is virtual: an operation takes its cost_us, or, where that is 0, up to a few microseconds
// chosen by the seed. Streams and drivers have clocks of their own, and what waits for another goes
// on no earlier than that one was done. Deadlines of operations and time limits of Await pass, the
// earliest first, only when nothing else can go on.
//
// When nothing can go on and no deadline is left, every stream with operations left fails, its
// operations are skipped without waiting, and, if that helps nobody, every Await ends: with
// kInternal and the list of who waits for what.
class SeededScheduler : public Scheduler {
 public:
  struct Options {
    uint64_t seed = 0;
    bool choose_order = true;  // by the seed; else:
    SeededOrder order = SeededOrder::kEven;
  };
  explicit SeededScheduler(uint64_t seed) : SeededScheduler(Options{seed}) {}
  explicit SeededScheduler(Options options);
  ~SeededScheduler() override;

  std::unique_ptr<OperationQueue> CreateQueue(const std::string& name, OperationHook hook) override;
  bool virtual_time() const override { return true; }
  int64_t progress() const override { return progress_; }
  absl::Status Await(Gate& gate, absl::FunctionRef<bool()> ready, absl::Duration timeout) override;
  void Yield() override;

  // Runs each on a thread of its own, one at a time, and returns when all have ended; what they
  // enqueued and did not wait for may be left to run. kInternal if one threw. kResourceExhausted if
  // the system has no thread for one: then none has run. Not from a driver.
  absl::Status RunDrivers(const std::vector<std::function<void()>>& drivers);

  SeededOrder order() const { return order_; }
  // The latest moment that a stream or a driver has come to.
  double now_us() const { return now_us_; }
  // Of the order of everything that has run: runs of the same seed agree.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  class Actor;
  class Driver;
  class Queue;
  class Turn;

  void Enlist(Actor* actor);
  void Forget(const Actor* actor);
  void Wait(Driver& self, Gate* gate, absl::FunctionRef<bool()> ready, absl::Duration timeout);
  void Schedule(Driver& self);   // returns when it is self's turn
  Driver* Next();                // runs operations until a driver is chosen
  Actor* Choose();               // of candidates_
  bool Expire(double until_us);  // the earliest deadline; false: none by then
  void EndDeadlock();            // fails what waits

  static thread_local Driver* this_driver_;

  SeededRandom random_;
  SeededOrder order_;
  uint32_t switch_one_in_;  // enqueues that let others go on; 0: none
  std::mutex outside_mutex_;
  const std::unique_ptr<Driver> outside_;  // the thread that is no driver of RunDrivers

  // Touched by whoever has the turn.
  std::vector<Queue*> queues_;
  std::vector<Driver*> drivers_;
  std::vector<Actor*> candidates_;
  uint64_t enlisted_ = 0;
  uint32_t could_starve_ = 0;
  const Actor* starved_ = nullptr;
  int64_t lowest_priority_ = 0;
  const Actor* last_ = nullptr;
  int unended_ = 0;  // drivers of RunDrivers
  std::atomic<int64_t> progress_{0};
  double now_us_ = 0;
  double progress_us_ = 0;
  uint64_t fingerprint_ = 0;
  absl::Status deadlock_;
};

}  // namespace zero
