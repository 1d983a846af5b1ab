#include "device/seeded_scheduler.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <limits>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/run_operation.h"

namespace zero {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kPollUs = 20;  // between two polls, when all else waits

// The scheduler whose operation runs on this thread: what that enqueues is no point to switch at.
thread_local const SeededScheduler* running_operation = nullptr;

double Microseconds(absl::Duration duration) {
  return duration > kLongestWait ? kNever : absl::ToDoubleMicroseconds(duration);
}

}  // namespace

// What the seed chooses between: a stream or a driver.
class SeededScheduler::Actor {
 public:
  virtual ~Actor() = default;
  virtual Queue* queue() { return nullptr; }
  virtual Driver* driver() { return nullptr; }

  int64_t priority = 0;
  const Driver* owner = nullptr;  // of a stream: the driver that made it
  uint64_t number = 0;            // in the order in which they came
  double ends_us = 0;             // if chosen now
};

class SeededScheduler::Driver : public Actor {
 public:
  enum class State : uint8_t { kRuns, kWaits, kYields, kEnded };

  Driver(SeededScheduler* its_scheduler, std::string its_name)
      : scheduler(its_scheduler), name(std::move(its_name)) {}
  Driver* driver() override { return this; }

  void GiveTurn() {
    std::lock_guard<std::mutex> lock(mutex_);
    turn_ = true;
    given_.notify_one();
  }
  void TakeTurn() {
    std::unique_lock<std::mutex> lock(mutex_);
    given_.wait(lock, [this] { return turn_; });
    turn_ = false;
  }

  // Can go on: not waiting, or for nothing any more.
  bool Ready() {
    if (state == State::kRuns) return true;
    if (state != State::kWaits) return false;
    if (!ended_by.ok()) return true;
    if (gate == nullptr) return (*ready)();
    std::lock_guard<std::mutex> lock(gate->mutex);
    return (*ready)();
  }

  // The moment at which its wait has lasted too long.
  double ExpiresUs() const {
    if (state != State::kWaits || !ended_by.ok()) return kNever;
    return std::max(clock_us, scheduler->progress_us_) + Microseconds(limit);
  }
  void Expire() { ended_by = NoProgressError(limit); }
  std::string Describe() const;

  SeededScheduler* const scheduler;
  const std::string name;
  State state = State::kRuns;
  double clock_us = 0;
  // While it waits:
  Gate* gate = nullptr;
  const absl::FunctionRef<bool()>* ready = nullptr;
  absl::Duration limit;
  absl::Status ended_by;  // OK: by `ready`
  std::string draining;   // the stream that it waits for where there is no gate

 private:
  std::mutex mutex_;
  std::condition_variable given_;
  bool turn_ = false;
};

thread_local SeededScheduler::Driver* SeededScheduler::this_driver_ = nullptr;

class SeededScheduler::Queue : public OperationQueue, public Actor {
 public:
  Queue(SeededScheduler* scheduler, std::string name, OperationHook hook)
      : scheduler_(scheduler), name_(std::move(name)), hook_(std::move(hook)) {}
  ~Queue() override;
  Queue* queue() override { return this; }

  void Push(Operation operation) override;
  absl::Status Health() const override {
    return failed_.load(std::memory_order_acquire) ? failure_ : absl::OkStatus();
  }

  bool empty() const { return items_.empty(); }
  // Whether its first operation can run or be skipped now.
  bool Ready();
  void RunFirst();
  // The moment at which the first operation's deadline passes.
  double ExpiresUs() const;
  void ExpireFirst();
  // Skips all that is left, whatever it waits for.
  void Fail(const absl::Status& reason) {
    SetFailure(reason);
    given_up_ = true;
  }
  std::string Describe() const;

 private:
  struct Item {
    Operation operation;
    double pushed_us;
    double cost_us;
  };
  void SetFailure(const absl::Status& status) {
    if (!failure_.ok() || status.ok()) return;
    failure_ = status;
    failed_.store(true, std::memory_order_release);
  }
  // Whether its first operation has to be ready.
  bool Blocks() const {
    const Operation& first = items_.front().operation;
    return first.ready && !given_up_ && (failure_.ok() || first.wait_if_skipped);
  }

  SeededScheduler* const scheduler_;
  const std::string name_;
  const OperationHook hook_;
  std::deque<Item> items_;
  absl::Status failure_;  // written once, before failed_
  std::atomic<bool> failed_{false};
  bool given_up_ = false;
  double clock_us_ = 0;
  // Of the first item:
  bool seen_ = false;  // somebody asked whether it is ready
  bool expired_ = false;
  double since_us_ = 0;    // at the head of the stream
  double starts_us_ = -1;  // negative: not ready yet
};

// The right to run, for as long as a call of a host thread lasts. A driver has it anyway.
class SeededScheduler::Turn {
 public:
  explicit Turn(SeededScheduler* scheduler) : scheduler_(scheduler) {
    if (this_driver_ != nullptr && this_driver_->scheduler == scheduler) {
      driver_ = this_driver_;
      return;
    }
    lock_ = std::unique_lock<std::mutex>(scheduler->outside_mutex_);
    driver_ = scheduler->outside_.get();
    scheduler->drivers_.push_back(driver_);
  }
  ~Turn() {
    if (lock_.owns_lock()) std::erase(scheduler_->drivers_, driver_);
  }
  Driver& driver() const { return *driver_; }

 private:
  SeededScheduler* const scheduler_;
  std::unique_lock<std::mutex> lock_;
  Driver* driver_;
};

void SeededScheduler::Queue::Push(Operation operation) {
  const bool inside = running_operation == scheduler_;
  std::optional<Turn> turn;
  if (!inside) turn.emplace(scheduler_);
  double cost_us = operation.cost_us;
  if (cost_us <= 0 && scheduler_->order_ != SeededOrder::kClock) {
    cost_us = 0.25 * (1 + scheduler_->random_.Below(16));
  }
  const double pushed_us = inside ? scheduler_->now_us_ : turn->driver().clock_us;
  items_.push_back({std::move(operation), pushed_us, cost_us});
  const uint32_t one_in = scheduler_->switch_one_in_;
  if (!inside && one_in > 0 && scheduler_->random_.OneIn(one_in)) {
    scheduler_->Schedule(turn->driver());
  }
}

SeededScheduler::Queue::~Queue() {
  const Turn turn(scheduler_);
  const auto ran_out = [this] { return items_.empty(); };
  if (!ran_out()) {
    turn.driver().draining = name_;
    scheduler_->Wait(turn.driver(), nullptr, ran_out, absl::InfiniteDuration());
  }
  std::erase(scheduler_->queues_, this);
  scheduler_->Forget(this);
}

bool SeededScheduler::Queue::Ready() {
  if (items_.empty()) return false;
  const Item& first = items_.front();
  const bool first_look = !seen_;
  if (first_look) {
    seen_ = true;
    since_us_ = std::max(clock_us_, first.pushed_us);
  }
  if (starts_us_ < 0) {
    if (Blocks()) {
      std::lock_guard<std::mutex> lock(first.operation.gate->mutex);
      if (!items_.front().operation.ready()) return false;
    }
    starts_us_ = first_look ? since_us_ : std::max(since_us_, scheduler_->now_us_);
  }
  ends_us = starts_us_ + first.cost_us;
  return true;
}

void SeededScheduler::Queue::RunFirst() {
  {
    Item first = std::move(items_.front());
    items_.pop_front();
    running_operation = scheduler_;
    const absl::Status status = failure_.ok() ? RunOperation(first.operation, name_, hook_)
                                              : SkipOperation(first.operation, failure_);
    // What the operation holds is released before anybody learns that it has run.
    first.operation = Operation();
    running_operation = nullptr;
    SetFailure(status);
  }
  clock_us_ = ends_us;
  seen_ = false;
  expired_ = false;
  starts_us_ = -1;
  scheduler_->now_us_ = std::max(scheduler_->now_us_, clock_us_);
  scheduler_->progress_us_ = scheduler_->now_us_;
  ++scheduler_->progress_;
}

double SeededScheduler::Queue::ExpiresUs() const {
  if (items_.empty() || !Blocks() || expired_ || !items_.front().operation.expire) return kNever;
  return since_us_ + Microseconds(items_.front().operation.deadline);
}

void SeededScheduler::Queue::ExpireFirst() {
  expired_ = true;
  items_.front().operation.expire();
}

std::string SeededScheduler::Driver::Describe() const {
  const std::string what =
      gate != nullptr ? gate->Describe() : absl::StrCat("the end of stream '", draining, "'");
  return absl::StrCat(name, " waits", what.empty() ? "" : " for ", what);
}

std::string SeededScheduler::Queue::Describe() const {
  const Operation& first = items_.front().operation;
  std::string text = absl::StrCat("stream '", name_, "'");
  if (owner != nullptr) absl::StrAppend(&text, " of ", owner->name);
  absl::StrAppend(&text, ": operation '", first.name, "' waits");
  const std::string what = first.gate->Describe();
  if (!what.empty()) absl::StrAppend(&text, " for ", what);
  return text;
}

SeededScheduler::SeededScheduler(Options options)
    : random_(options.seed),
      order_(options.order),
      outside_(std::make_unique<Driver>(this, "the host")) {
  const SeededOrder drawn = static_cast<SeededOrder>(random_.Below(5));
  if (options.choose_order) order_ = drawn;
  const uint32_t one_in[] = {0, 1, 2, 4, 16};
  switch_one_in_ = one_in[random_.Below(5)];
  if (order_ == SeededOrder::kClock) switch_one_in_ = 1;
  Enlist(outside_.get());
}

SeededScheduler::~SeededScheduler() = default;

void SeededScheduler::Enlist(Actor* actor) {
  actor->number = ++enlisted_;
  actor->priority = static_cast<int64_t>(random_.Next() >> 2);
  if (order_ == SeededOrder::kStarvedStream && actor->queue() == nullptr) return;
  if (order_ == SeededOrder::kStarvedDriver && actor->driver() == nullptr) return;
  // Any of them with the same chance, though nobody knows yet how many there will be.
  if (random_.OneIn(++could_starve_)) starved_ = actor;
}

void SeededScheduler::Forget(const Actor* actor) {
  if (starved_ == actor) starved_ = nullptr;
  if (last_ == actor) last_ = nullptr;
}

std::unique_ptr<OperationQueue> SeededScheduler::CreateQueue(const std::string& name,
                                                             OperationHook hook) {
  const Turn turn(this);
  auto queue = std::make_unique<Queue>(this, name, std::move(hook));
  if (&turn.driver() != outside_.get()) queue->owner = &turn.driver();
  Enlist(queue.get());
  queues_.push_back(queue.get());
  return queue;
}

absl::Status SeededScheduler::Await(Gate& gate, absl::FunctionRef<bool()> ready,
                                    absl::Duration timeout) {
  if (running_operation == this) {
    return absl::FailedPreconditionError(
        "an operation waits in its run(): what it waits for belongs into its ready()");
  }
  const Turn turn(this);
  Driver& self = turn.driver();
  Wait(self, &gate, ready, timeout);
  return self.ended_by;
}

void SeededScheduler::Wait(Driver& self, Gate* gate, absl::FunctionRef<bool()> ready,
                           absl::Duration timeout) {
  self.state = Driver::State::kWaits;
  self.gate = gate;
  self.ready = &ready;
  self.limit = timeout;
  self.ended_by = absl::OkStatus();
  Schedule(self);
  self.state = Driver::State::kRuns;
  self.clock_us = std::max(self.clock_us, now_us_);
}

void SeededScheduler::Yield() {
  if (running_operation == this) return;
  const Turn turn(this);
  turn.driver().state = Driver::State::kYields;
  Schedule(turn.driver());
  turn.driver().state = Driver::State::kRuns;
}

void SeededScheduler::Schedule(Driver& self) {
  Driver* const next = Next();
  if (next == &self) return;
  next->GiveTurn();
  self.TakeTurn();
}

SeededScheduler::Driver* SeededScheduler::Next() {
  while (true) {
    candidates_.clear();
    std::vector<Driver*> polling;
    for (Queue* queue : queues_) {
      if (queue->Ready()) candidates_.push_back(queue);
    }
    for (Driver* driver : drivers_) {
      if (driver->state == Driver::State::kYields) polling.push_back(driver);
      if (driver->Ready()) candidates_.push_back(driver);
      driver->ends_us = driver->clock_us;
    }
    // A poll is no progress: it must neither hold the others up nor stop the clock.
    if (!polling.empty() && (candidates_.empty() || random_.OneIn(4))) {
      if (candidates_.empty()) {
        if (Expire(now_us_ + kPollUs)) continue;
        now_us_ += kPollUs;
      }
      candidates_.assign(polling.begin(), polling.end());
    }
    if (candidates_.empty()) {
      if (!Expire(kNever)) EndDeadlock();
      continue;
    }
    Actor* const chosen = Choose();
    last_ = chosen;
    fingerprint_ = SeededRandom(fingerprint_ ^ chosen->number).Next();
    if (chosen->driver() != nullptr) return chosen->driver();
    chosen->queue()->RunFirst();
  }
}

SeededScheduler::Actor* SeededScheduler::Choose() {
  const auto any = [this] {
    return candidates_[random_.Below(static_cast<uint32_t>(candidates_.size()))];
  };
  switch (order_) {
    case SeededOrder::kEven:
      return any();
    case SeededOrder::kSticky: {
      const auto same = std::find(candidates_.begin(), candidates_.end(), last_);
      return same == candidates_.end() || random_.OneIn(16) ? any() : *same;
    }
    case SeededOrder::kPriorities: {
      Actor* const highest = *std::max_element(
          candidates_.begin(), candidates_.end(),
          [](const Actor* a, const Actor* b) { return a->priority < b->priority; });
      if (random_.OneIn(32)) highest->priority = --lowest_priority_;
      return highest;
    }
    case SeededOrder::kStarvedStream:
    case SeededOrder::kStarvedDriver: {
      const auto starves = [this](const Actor* actor) {
        return actor == starved_ || (actor->owner != nullptr && actor->owner == starved_);
      };
      if (!std::all_of(candidates_.begin(), candidates_.end(), starves)) {
        std::erase_if(candidates_, starves);
      }
      return any();
    }
    case SeededOrder::kClock:
      return *std::min_element(
          candidates_.begin(), candidates_.end(),
          [](const Actor* a, const Actor* b) { return a->ends_us < b->ends_us; });
  }
  return any();
}

bool SeededScheduler::Expire(double until_us) {
  double earliest_us = kNever;
  Queue* first_queue = nullptr;
  Driver* first_driver = nullptr;
  for (Queue* queue : queues_) {
    if (queue->ExpiresUs() >= earliest_us) continue;
    earliest_us = queue->ExpiresUs();
    first_queue = queue;
  }
  for (Driver* driver : drivers_) {
    if (driver->ExpiresUs() >= earliest_us) continue;
    earliest_us = driver->ExpiresUs();
    first_driver = driver;
  }
  if (earliest_us == kNever || earliest_us > until_us) return false;
  now_us_ = std::max(now_us_, earliest_us);
  if (first_driver != nullptr) {
    first_driver->Expire();
  } else {
    first_queue->ExpireFirst();
  }
  return true;
}

void SeededScheduler::EndDeadlock() {
  std::vector<std::string> waiting;
  for (const Queue* queue : queues_) {
    if (!queue->empty()) waiting.push_back(queue->Describe());
  }
  for (const Driver* driver : drivers_) {
    if (driver->state == Driver::State::kWaits) waiting.push_back(driver->Describe());
  }
  // Waits that are left when the streams have failed are told of these, too.
  if (deadlock_.ok()) {
    deadlock_ = absl::InternalError(
        absl::StrCat("deadlock, nothing can go on: ", absl::StrJoin(waiting, "; ")));
  }
  bool failed = false;
  for (Queue* queue : queues_) {
    if (queue->empty()) continue;
    queue->Fail(deadlock_);
    failed = true;
  }
  if (failed) return;
  for (Driver* driver : drivers_) {
    if (driver->state == Driver::State::kWaits) driver->ended_by = deadlock_;
  }
  deadlock_ = absl::OkStatus();
}

absl::Status SeededScheduler::RunDrivers(const std::vector<std::function<void()>>& bodies) {
  if (bodies.empty()) return absl::OkStatus();
  const Turn turn(this);
  bool cancelled = false;
  absl::Status thrown;
  std::vector<std::unique_ptr<Driver>> drivers;
  std::vector<std::thread> threads;
  for (const std::function<void()>& body : bodies) {
    drivers.push_back(std::make_unique<Driver>(this, absl::StrCat("driver ", drivers.size())));
    Driver* const driver = drivers.back().get();
    try {
      threads.emplace_back([this, driver, &body, &cancelled, &thrown] {
        this_driver_ = driver;
        driver->TakeTurn();
        if (cancelled) return;
        const absl::Status status = CallGuarded("the thread of", driver->name, [&body] {
          body();
          return absl::OkStatus();
        });
        thrown.Update(status);  // by one at a time
        driver->state = Driver::State::kEnded;
        Driver* const next = --unended_ == 0 ? outside_.get() : Next();
        next->GiveTurn();
      });
    } catch (const std::system_error& error) {
      cancelled = true;
      for (size_t i = 0; i < threads.size(); ++i) drivers[i]->GiveTurn();
      for (std::thread& thread : threads) thread.join();
      return absl::ResourceExhaustedError(
          absl::StrCat("no thread for ", driver->name, ": ", error.what()));
    }
  }
  could_starve_ = 0;  // the outside thread has its rest now
  for (const auto& driver : drivers) {
    Enlist(driver.get());
    drivers_.push_back(driver.get());
  }
  unended_ = static_cast<int>(drivers.size());
  outside_->state = Driver::State::kEnded;
  Next()->GiveTurn();
  outside_->TakeTurn();
  outside_->state = Driver::State::kRuns;
  for (std::thread& thread : threads) thread.join();
  for (const auto& driver : drivers) {
    outside_->clock_us = std::max(outside_->clock_us, driver->clock_us);
    std::erase(drivers_, driver.get());
    Forget(driver.get());
    for (Queue* queue : queues_) {
      if (queue->owner == driver.get()) queue->owner = nullptr;
    }
  }
  return thrown;
}

}  // namespace zero
