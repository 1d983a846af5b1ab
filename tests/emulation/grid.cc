#include "tests/emulation/grid.h"

#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "tests/emulation/cuda_emulation.h"
#include "tests/emulation/fiber.h"

constinit thread_local uint3 threadIdx = {0, 0, 0};
constinit thread_local uint3 blockIdx = {0, 0, 0};
constinit thread_local dim3 blockDim;
constinit thread_local dim3 gridDim;

namespace zero::emulation {
namespace {

constexpr unsigned kWarpLanes = 32;
constexpr uint64_t kGarbage = 0xDBDBDBDBDBDBDBDBu;

std::atomic<Order> order_of_grids{Order::kForward};
std::atomic<uint64_t> seed_of_grids{0};
std::atomic<bool> fiber_for_each_thread{false};

std::string Text(const Index& i) {
  return "(" + std::to_string(i.x) + ", " + std::to_string(i.y) + ", " + std::to_string(i.z) + ")";
}

Index At(uint64_t linear, const Index& size) {
  return {static_cast<unsigned>(linear % size.x), static_cast<unsigned>(linear / size.x % size.y),
          static_cast<unsigned>(linear / size.x / size.y)};
}

uint64_t Count(const Index& size) { return uint64_t{size.x} * size.y * size.z; }

// Visits 0 .. n - 1, each once.
class Turns {
 public:
  Turns(Order order, uint64_t n, uint64_t* random) : n_(n) {
    if (order == Order::kReverse) {
      at_ = n - 1;
      stride_ = n - 1;
    } else if (order == Order::kSeeded && n > 2) {
      at_ = Next(random) % n;
      do {
        stride_ = 1 + Next(random) % (n - 1);
      } while (Divisor(stride_, n) != 1);
    } else if (order == Order::kSeeded) {
      at_ = Next(random) % n;
    }
  }
  uint64_t at() const { return at_; }
  void Advance() { at_ = (at_ + stride_) % n_; }

 private:
  // splitmix64
  static uint64_t Next(uint64_t* state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  static uint64_t Divisor(uint64_t a, uint64_t b) {
    while (b != 0) {
      const uint64_t rest = a % b;
      a = b;
      b = rest;
    }
    return a;
  }

  uint64_t n_;
  uint64_t at_ = 0;
  uint64_t stride_ = 1;
};

enum class State { kNotStarted, kReady, kAtBarrier, kAtWarp, kLeft };

struct Worker;

struct Thread {
  State state = State::kNotStarted;
  Worker* worker = nullptr;  // while it is between its start and its end
  // At a meeting of its warp:
  WarpOperation operation = WarpOperation::kSync;
  unsigned mask = 0;
  uint64_t value = 0;  // brought, then the result
  int argument = 0;
  int width = 0;
};

class Runner;

// A fiber that runs threads of blocks, one after the other as long as none of them blocks.
struct Worker {
  explicit Worker(Runner* owner) : runner(owner), fiber(&Worker::Main, this) {}
  static void Main(void* self);

  Runner* const runner;
  Fiber fiber;
  bool blocked = false;  // the thread that it runs has blocked since it started
};

struct Warp {
  char order[2] = {};  // addresses for ThreadSanitizer, used in turn
  unsigned meetings = 0;
};

// Runs one grid at a time. Kept for the next one.
class Runner {
 public:
  // No growth inside a kernel: to ThreadSanitizer it would be one thread freeing another's memory.
  Runner() { shared_.reserve(kMostShared); }

  // Called in the thread that runs the grids from now on.
  void TakeOver() { Acquire(&end_); }
  Runner* next = nullptr;  // in a list of the pool

  // The text of what went wrong, or "".
  std::string Run(const Grid& grid);

  void SyncThreads();
  uint64_t MeetWarp(WarpOperation operation, unsigned mask, uint64_t value, int argument,
                    int width);
  unsigned LanesPresent(unsigned mask) const;
  void* Shared(const void* key, size_t bytes);
  void* DynamicShared() { return Shared(grid_, grid_->dynamic_shared_bytes); }

  void RunThreads(Worker* worker);
  void Return(Worker* worker) { Switch(worker->fiber.context(), &scheduler_); }

 private:
  struct SharedBlock {
    const void* key;
    void* data;
  };
  static constexpr size_t kMostShared = 64;

  void RunBlock();
  bool RunTurns();
  void SetThread(uint64_t thread);
  Worker* TakeWorker(uint64_t thread);
  void Block(State state);
  void Leave();
  void MeetIfComplete(uint64_t warp_begin, unsigned mask);
  uint64_t Result(uint64_t warp_begin, unsigned lane, unsigned present) const;
  void Fail(const std::string& what);
  std::string DescribeWaiting() const;
  void FreeShared();

  const Grid* grid_ = nullptr;
  Order order_ = Order::kForward;
  bool fiber_each_ = false;
  uint64_t random_ = 0;
  Context scheduler_;
  Index block_ = {};
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  uint64_t current_ = 0;  // the thread that runs
  uint64_t left_ = 0;     // threads that have left the kernel
  uint64_t at_barrier_ = 0;
  uint64_t at_warp_ = 0;
  Turns* turns_ = nullptr;
  uint64_t turn_ = 0;
  std::vector<Worker*> workers_;
  size_t busy_ = 0;  // the workers from here on are free
  std::vector<SharedBlock> shared_;
  std::string failure_;
  char start_ = 0, end_ = 0, barrier_[2] = {};  // addresses for ThreadSanitizer
  unsigned barriers_ = 0;
#if ZERO_EMULATION_TSAN
  // Memory that malloc hands out inside a kernel would itself look like a race there.
  static constexpr size_t kArenaBytes = 256 << 10;
  char* const arena_ = static_cast<char*>(std::malloc(kArenaBytes));
  size_t arena_used_ = 0;
#endif
};

thread_local Runner* running = nullptr;

// A worker may go on in another thread of the process than it began in, so that no address of a
// thread_local variable may be kept in its frames: this keeps them apart.
__attribute__((noinline)) Runner* Running() { return running; }

void Worker::Main(void* self) {
  Worker* const worker = static_cast<Worker*>(self);
  for (;;) {
    worker->runner->RunThreads(worker);
    worker->runner->Return(worker);
  }
}

std::string Runner::Run(const Grid& grid) {
  grid_ = &grid;
  order_ = order_of_grids;
  random_ = seed_of_grids;
  fiber_each_ = fiber_for_each_thread;
  failure_.clear();
  scheduler_ = Context();
  DescribeThread(&scheduler_);
  blockDim = dim3(grid.threads.x, grid.threads.y, grid.threads.z);
  gridDim = dim3(grid.blocks.x, grid.blocks.y, grid.blocks.z);
  const uint64_t blocks = Count(grid.blocks);
  Turns turns(order_, blocks, &random_);
  for (uint64_t i = 0; i < blocks && failure_.empty(); ++i, turns.Advance()) {
    block_ = At(turns.at(), grid.blocks);
    RunBlock();
  }
  Release(&end_);  // for who takes over
  return failure_;
}

void Runner::RunBlock() {
  blockIdx = {block_.x, block_.y, block_.z};
  const uint64_t count = Count(grid_->threads);
  threads_.assign(count, Thread());
  warps_.resize((count + kWarpLanes - 1) / kWarpLanes);
  left_ = 0;
  at_barrier_ = 0;
  at_warp_ = 0;
  busy_ = 0;
  Release(&start_);
  while (left_ < count && failure_.empty()) {
    if (!RunTurns() && failure_.empty()) Fail(DescribeWaiting());
  }
  Acquire(&end_);
  FreeShared();
}

// Gives each thread that is not blocked a turn. False if there was none.
bool Runner::RunTurns() {
  const uint64_t count = threads_.size();
  Turns turns(order_, count, &random_);
  turns_ = &turns;
  bool any = false;
  for (turn_ = 0; turn_ < count && failure_.empty(); ++turn_, turns.Advance()) {
    Thread& thread = threads_[turns.at()];
    if (thread.state != State::kNotStarted && thread.state != State::kReady) continue;
    any = true;
    SetThread(turns.at());
    Worker* worker = thread.worker;
    if (worker == nullptr) worker = TakeWorker(turns.at());
    Switch(&scheduler_, worker->fiber.context());
  }
  return any;
}

void Runner::SetThread(uint64_t thread) {
  current_ = thread;
  const Index index = At(thread, grid_->threads);
  threadIdx = {index.x, index.y, index.z};
}

Worker* Runner::TakeWorker(uint64_t thread) {
  const size_t at = fiber_each_ ? thread : busy_++;
  while (workers_.size() <= at) workers_.push_back(new Worker(this));
  return workers_[at];
}

// On the worker's stack: runs the current thread, and those after it in turn that have not started
// until one of them blocks.
void Runner::RunThreads(Worker* worker) {
  for (;;) {
    Thread& thread = threads_[current_];
    thread.worker = worker;
    worker->blocked = false;
    Acquire(&start_);
    grid_->body(grid_->argument);
    Leave();
    if (fiber_each_ || worker->blocked) return;  // the scheduler has gone on with the turns since
    if (turn_ + 1 >= threads_.size()) {
      --busy_;
      return;
    }
    ++turn_;
    turns_->Advance();
    SetThread(turns_->at());
  }
}

void Runner::Leave() {
  Release(&end_);
  Thread& thread = threads_[current_];
  thread.state = State::kLeft;
  thread.worker = nullptr;
  ++left_;
  if (at_warp_ == 0) return;
  const uint64_t warp_begin = current_ / kWarpLanes * kWarpLanes;
  for (uint64_t i = warp_begin; i < threads_.size() && i < warp_begin + kWarpLanes; ++i) {
    if (threads_[i].state == State::kAtWarp) MeetIfComplete(warp_begin, threads_[i].mask);
  }
}

void Runner::Block(State state) {
  Thread& thread = threads_[current_];
  thread.state = state;
  Worker* const worker = thread.worker;
  worker->blocked = true;
  Release(&end_);  // it may be the last that is heard of this thread
  Return(worker);
}

void Runner::SyncThreads() {
  char* const order = &barrier_[barriers_ % 2];
  Release(order);
  if (++at_barrier_ == threads_.size()) {
    for (Thread& thread : threads_) thread.state = State::kReady;
    at_barrier_ = 0;
    ++barriers_;
    Block(State::kReady);
  } else {
    Block(State::kAtBarrier);
  }
  Acquire(order);
}

uint64_t Runner::MeetWarp(WarpOperation operation, unsigned mask, uint64_t value, int argument,
                          int width) {
  const uint64_t warp_begin = current_ / kWarpLanes * kWarpLanes;
  const unsigned lane = static_cast<unsigned>(current_ - warp_begin);
  Thread& thread = threads_[current_];
  if ((mask >> lane & 1) == 0) {
    Fail("thread " + Text(At(current_, grid_->threads)) + " is not in the mask that it gives");
    Block(State::kAtWarp);
  }
  thread.operation = operation;
  thread.mask = mask;
  thread.value = value;
  thread.argument = argument;
  thread.width = width;
  thread.state = State::kAtWarp;
  ++at_warp_;
  Warp& warp = warps_[warp_begin / kWarpLanes];
  // A shuffle moves values, it does not order memory.
  char* const order = &warp.order[warp.meetings % 2];
  if (operation == WarpOperation::kSync) Release(order);
  MeetIfComplete(warp_begin, mask);
  Block(thread.state);
  if (operation == WarpOperation::kSync) Acquire(order);
  return thread.value;
}

unsigned Runner::LanesPresent(unsigned mask) const {
  const uint64_t warp_begin = current_ / kWarpLanes * kWarpLanes;
  unsigned present = 0;
  for (unsigned lane = 0; lane < kWarpLanes && warp_begin + lane < threads_.size(); ++lane) {
    if (threads_[warp_begin + lane].state != State::kLeft) present |= 1u << lane;
  }
  return present & mask;
}

void Runner::MeetIfComplete(uint64_t warp_begin, unsigned mask) {
  const unsigned present = LanesPresent(mask);
  const WarpOperation* operation = nullptr;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((present >> lane & 1) == 0) continue;
    const Thread& thread = threads_[warp_begin + lane];
    if (thread.state != State::kAtWarp || thread.mask != mask) return;
    if (operation == nullptr) operation = &thread.operation;
    if (thread.operation != *operation) return;
  }
  uint64_t results[kWarpLanes];
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((present >> lane & 1) != 0) results[lane] = Result(warp_begin, lane, present);
  }
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((present >> lane & 1) == 0) continue;
    threads_[warp_begin + lane].value = results[lane];
    threads_[warp_begin + lane].state = State::kReady;
    --at_warp_;
  }
  ++warps_[warp_begin / kWarpLanes].meetings;
}

uint64_t Runner::Result(uint64_t warp_begin, unsigned lane, unsigned present) const {
  const Thread& thread = threads_[warp_begin + lane];
  if (thread.operation == WarpOperation::kSync) return 0;
  if (thread.operation == WarpOperation::kBallot) {
    uint64_t votes = 0;
    for (unsigned i = 0; i < kWarpLanes; ++i) {
      if ((present >> i & 1) != 0 && threads_[warp_begin + i].value != 0) votes |= 1u << i;
    }
    return votes;
  }
  const int own = static_cast<int>(lane);
  const int segment = own / thread.width * thread.width;
  int source = own;
  switch (thread.operation) {
    case WarpOperation::kShuffle:
      source = segment + (thread.argument & (thread.width - 1));
      break;
    case WarpOperation::kShuffleUp:
      if (own - thread.argument >= segment) source = own - thread.argument;
      break;
    case WarpOperation::kShuffleDown:
      if (own + thread.argument < segment + thread.width) source = own + thread.argument;
      break;
    default:
      // Within a segment, and from segments before it, as CUDA documents.
      if ((own ^ thread.argument) < segment + thread.width) source = own ^ thread.argument;
      break;
  }
  if ((present >> source & 1) == 0) return kGarbage;
  return threads_[warp_begin + static_cast<unsigned>(source)].value;
}

void* Runner::Shared(const void* key, size_t bytes) {
  for (const SharedBlock& block : shared_) {
    if (block.key == key) return block.data;
  }
#if ZERO_EMULATION_TSAN
  void* const data = arena_ + arena_used_;
  arena_used_ += (bytes + 63) / 64 * 64;
  if (arena_used_ > kArenaBytes) __builtin_trap();  // more than any block may have
  // By hand: a call of memset would be seen, as a write of the thread that came first.
  volatile char* const each = static_cast<volatile char*>(data);
  for (size_t i = 0; i < bytes; ++i) each[i] = static_cast<char>(0xFF);
#else
  // Of the exact size, so that AddressSanitizer sees an element too much.
  void* const data = std::malloc(bytes);
  std::memset(data, 0xFF, bytes);
#endif
  if (shared_.size() == kMostShared) __builtin_trap();  // declarations of one kernel
  shared_.push_back({key, data});
  return data;
}

void Runner::FreeShared() {
#if ZERO_EMULATION_TSAN
  arena_used_ = 0;
#else
  // A thread that failed has left its frames, and pointers in them, behind.
  for (const SharedBlock& block : shared_) std::free(block.data);
#endif
  shared_.clear();
}

void Runner::Fail(const std::string& what) {
  failure_ = std::string(grid_->name) + ", block " + Text(block_) + ": " + what;
  Release(&end_);  // the text too
}

std::string Runner::DescribeWaiting() const {
  std::string text;
  for (State state : {State::kAtBarrier, State::kAtWarp, State::kLeft}) {
    uint64_t count = 0;
    uint64_t first = 0;
    for (uint64_t i = threads_.size(); i-- > 0;) {
      if (threads_[i].state != state) continue;
      ++count;
      first = i;
    }
    if (count == 0) continue;
    if (!text.empty()) text += ", ";
    text += std::to_string(count) + " from " + Text(At(first, grid_->threads)) + " on ";
    text += state == State::kAtBarrier ? "wait at __syncthreads"
            : state == State::kAtWarp  ? "wait for lanes of their warp"
                                       : "have left the kernel";
  }
  return "threads can never go on: " + text;
}

// Each thread of the process that runs grids keeps its runner, and leaves it to another when it
// ends: making fibers is slow, and a fiber that served two streams in turn would make
// ThreadSanitizer believe them ordered. Nothing is ever freed.
class RunnerPool {
 public:
  Runner* Take() {
    Lock();
    Runner* const runner = free_;
    if (runner != nullptr) free_ = runner->next;
    Unlock();
    return runner;
  }
  void Give(Runner* runner) { Push(&free_, runner); }
  // Its fibers stand in the middle of a kernel that failed. Kept, so that nothing they point to
  // counts as leaked.
  void Keep(Runner* runner) { Push(&broken_, runner); }

 private:
  void Push(Runner** list, Runner* runner) {
    Lock();
    runner->next = *list;
    *list = runner;
    Unlock();
  }
  // Not a mutex, which would order the streams too.
  void Lock() {
    while (busy_.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  void Unlock() { busy_.clear(std::memory_order_release); }

  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  Runner* free_ = nullptr;
  Runner* broken_ = nullptr;
};
constinit RunnerPool runner_pool;

struct RunnerOfThread {
  Runner* runner = nullptr;
  Runner* Get() {
    if (runner != nullptr) return runner;
    runner = runner_pool.Take();
    if (runner == nullptr) runner = new Runner();
    runner->TakeOver();
    return runner;
  }
  void Break() {
    runner_pool.Keep(runner);
    runner = nullptr;
  }
  ~RunnerOfThread() {
    if (runner != nullptr) runner_pool.Give(runner);
  }
};
thread_local RunnerOfThread runner_of_thread;

}  // namespace

void SetOrder(Order order, uint64_t seed) {
  order_of_grids = order;
  seed_of_grids = seed;
}

void SetFiberForEachThread(bool on) { fiber_for_each_thread = on; }

void RunGrid(const Grid& grid) {
  running = runner_of_thread.Get();
  const std::string failure = running->Run(grid);
  running = nullptr;
  if (failure.empty()) return;
  runner_of_thread.Break();
  throw std::runtime_error(failure);
}

void SyncThreads() { Running()->SyncThreads(); }

uint64_t MeetWarp(WarpOperation operation, unsigned mask, uint64_t value, int argument, int width) {
  return Running()->MeetWarp(operation, mask, value, argument, width);
}

unsigned LanesPresent(unsigned mask) { return Running()->LanesPresent(mask); }

void* SharedMemory(const void* key, size_t bytes) { return Running()->Shared(key, bytes); }

void* DynamicSharedMemory() { return Running()->DynamicShared(); }

}  // namespace zero::emulation
