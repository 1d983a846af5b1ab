#include "device/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "device/host_device.h"
#include "tests/catch.h"

namespace zero {
namespace {

using Pieces = std::vector<std::pair<int64_t, int64_t>>;

// What is wrong with the pieces of one loop; empty if they cover [0, n) once.
std::string Fault(Pieces pieces, int64_t n, int64_t grain) {
  std::sort(pieces.begin(), pieces.end());
  int64_t end = 0;
  for (const auto& [first, last] : pieces) {
    if (first != end) return "a gap or an overlap at " + std::to_string(first);
    if (last <= first) return "an empty piece at " + std::to_string(first);
    if (last != n && (last - first) % grain != 0) return "no multiple of the grain";
    end = last;
  }
  return end == n ? "" : "ends at " + std::to_string(end);
}

Pieces Run(ThreadPool* pool, int64_t n, int64_t grain) {
  std::mutex mutex;
  Pieces pieces;
  ParallelFor(pool, n, grain, [&](int64_t begin, int64_t end) {
    std::lock_guard<std::mutex> lock(mutex);
    pieces.emplace_back(begin, end);
  });
  return pieces;
}

TEST_CASE("ThreadPool: pieces cover the range exactly once, for any size, grain and threads",
          "[device][thread]") {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    CHECK(pool.threads() == threads);
    for (int64_t n : {0, 1, 2, 7, 64, 100, 1023, 4096, 100000}) {
      for (int64_t grain : {1, 3, 64, 1000, 1000000}) {
        CAPTURE(threads, n, grain);
        REQUIRE(Fault(Run(&pool, n, grain), n, grain) == "");
      }
    }
  }
}

TEST_CASE("ThreadPool: grains that make no sense, and sizes near the end of the numbers, are taken",
          "[device]") {
  ThreadPool pool(3);
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  CHECK(Fault(Run(&pool, 10, 0), 10, 1) == "");
  CHECK(Fault(Run(&pool, 10, -5), 10, 1) == "");
  CHECK(Fault(Run(&pool, 10, kHuge), 10, 1) == "");
  CHECK(Run(&pool, 0, 1).empty());
  CHECK(Run(&pool, -3, 1).empty());
  CHECK(Fault(Run(&pool, kHuge, kHuge), kHuge, 1) == "");
  CHECK(Fault(Run(nullptr, 100, 7), 100, 1) == "");
  CHECK(Run(nullptr, 0, 7).empty());
}

TEST_CASE("ThreadPool: several callers share the threads and each gets its own range",
          "[device][thread]") {
  ThreadPool pool(3);
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&pool, &wrong, c] {
      for (int round = 0; round < 30; ++round) {
        const int64_t n = 1 + (round * 37 + c * 101) % 500;
        std::vector<int> touched(static_cast<size_t>(n), 0);  // no lock: pieces are disjoint
        pool.ParallelFor(n, 1 + round % 5, [&touched](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++touched[i];
        });
        wrong[c] += static_cast<int>(n - std::count(touched.begin(), touched.end(), 1));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("ThreadPool: what the pieces wrote is there when the call returns", "[device][thread]") {
  ThreadPool pool(4);
  std::vector<int64_t> values(10000, 0);
  for (int round = 1; round <= 20; ++round) {
    pool.ParallelFor(10000, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[i] += i;
    });
    REQUIRE(values[9999] == 9999 * round);
    REQUIRE(values[5000] == 5000 * round);
  }
}

}  // namespace
}  // namespace zero
