#include "device/thread_pool.h"

#include <algorithm>
#include <atomic>

#include "device/processors.h"

namespace zero {

struct ThreadPool::Loop {
  Loop(int64_t size, int64_t piece_size, absl::FunctionRef<void(int64_t, int64_t)> function)
      : n(size), piece(piece_size), pieces((size + piece_size - 1) / piece_size), body(function) {}

  const int64_t n;
  const int64_t piece;
  const int64_t pieces;
  const absl::FunctionRef<void(int64_t, int64_t)> body;
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::condition_variable finished;
  int64_t done = 0;
};

ThreadPool::ThreadPool(int threads, const std::vector<int>& cores) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { Work(); });
  if (cores.empty()) return;
  for (std::thread& worker : workers_) binding_.Update(BindThread(worker.native_handle(), cores));
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunPieces(Loop& loop) {
  int64_t done = 0;
  // body is alive while a piece is left: ParallelFor returns only when all of them are done.
  for (int64_t i = loop.next.fetch_add(1); i < loop.pieces; i = loop.next.fetch_add(1)) {
    const int64_t begin = i * loop.piece;
    loop.body(begin, std::min(loop.n, begin + loop.piece));
    ++done;
  }
  if (done == 0) return;
  std::lock_guard<std::mutex> lock(loop.mutex);
  loop.done += done;
  if (loop.done == loop.pieces) loop.finished.notify_all();
}

void ThreadPool::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !loops_.empty(); });
    if (stop_) return;
    std::shared_ptr<Loop> loop = loops_.front();
    if (loop->next.load() >= loop->pieces) {
      loops_.pop_front();
      continue;
    }
    lock.unlock();
    RunPieces(*loop);
    lock.lock();
  }
}

void ThreadPool::ParallelFor(int64_t n, int64_t grain,
                             absl::FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  grain = std::clamp<int64_t>(grain, 1, n);
  const int64_t grains = (n - 1) / grain + 1;
  // Four pieces a thread even out threads that start late.
  const int64_t wanted = std::min<int64_t>(grains, threads() > 1 ? 4 * threads() : 1);
  if (wanted <= 1) {
    body(0, n);
    return;
  }
  auto loop = std::make_shared<Loop>(n, (grains + wanted - 1) / wanted * grain, body);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    loops_.push_back(loop);
  }
  wake_.notify_all();
  RunPieces(*loop);
  {
    std::unique_lock<std::mutex> lock(loop->mutex);
    loop->finished.wait(lock, [&] { return loop->done == loop->pieces; });
  }
  std::lock_guard<std::mutex> lock(mutex_);
  loops_.erase(std::remove(loops_.begin(), loops_.end(), loop), loops_.end());
}

}  // namespace zero
