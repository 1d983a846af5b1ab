// Threads that share out the loops of the host kernels.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace zero {

// Made by the program and passed to the devices that share it; outlives them.
class ThreadPool {
 public:
  // The calling thread takes part in each loop, so `threads` - 1 are started; 1 starts none.
  // Those run on `cores` only (none: where the calling thread may), unless that cannot be: see
  // binding. The calling threads stay where they are.
  explicit ThreadPool(int threads, const std::vector<int>& cores = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Why the threads could not be bound to their cores; they work all the same.
  const absl::Status& binding() const { return binding_; }

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) for pieces that cover [0, n), each a multiple of `grain` but the last,
  // on several threads at once; returns when all are done. `body` must not call ParallelFor, and
  // must not throw. Several threads may call it at once and share the pool.
  // Which thread gets which piece is left to chance: a result must not depend on it.
  void ParallelFor(int64_t n, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body);

 private:
  struct Loop;
  void Work();
  static void RunPieces(Loop& loop);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Loop>> loops_;
  bool stop_ = false;
  std::vector<std::thread> workers_;
  absl::Status binding_;
};

}  // namespace zero
