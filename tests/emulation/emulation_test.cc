#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/emulation/cuda_emulation.h"

namespace zero::emulation {
namespace {

constexpr unsigned kAll = 0xFFFFFFFFu;

// Runs `body` as each thread of a grid.
template <class Body>
void RunThreads(Index blocks, Index threads, const Body& body, size_t shared_bytes = 0) {
  Grid grid;
  grid.name = "kernel";
  grid.blocks = blocks;
  grid.threads = threads;
  grid.dynamic_shared_bytes = shared_bytes;
  grid.body = [](const void* argument) { (*static_cast<const Body*>(argument))(); };
  grid.argument = &body;
  RunGrid(grid);
}

template <class Body>
void ForEachOrder(const Body& body) {
  for (Order order : {Order::kForward, Order::kReverse, Order::kSeeded}) {
    SetOrder(order, 11);
    CAPTURE(static_cast<int>(order));
    body();
  }
  SetOrder(Order::kForward);
}

unsigned Lane() { return threadIdx.x % 32; }

TEST_CASE("RunGrid: every thread of every block runs once", "[emulation]") {
  ForEachOrder([] {
    std::vector<int> seen(2 * 3 * 4 * 5 * 2 * 3, 0);
    RunThreads({2, 3, 4}, {5, 2, 3}, [&] {
      const unsigned block = blockIdx.x + 2 * (blockIdx.y + 3 * blockIdx.z);
      const unsigned thread = threadIdx.x + 5 * (threadIdx.y + 2 * threadIdx.z);
      const bool dimensions = gridDim.x == 2 && gridDim.y == 3 && gridDim.z == 4 &&
                              blockDim.x == 5 && blockDim.y == 2 && blockDim.z == 3;
      if (dimensions) ++seen[block * 30 + thread];
    });
    CHECK(seen == std::vector<int>(seen.size(), 1));
  });
}

TEST_CASE("RunGrid: threads and blocks come in the order that was set", "[emulation]") {
  std::set<std::vector<unsigned>> orders;
  ForEachOrder([&] {
    std::vector<unsigned> order;
    RunThreads({3, 1, 1}, {40, 1, 1}, [&] { order.push_back(blockIdx.x * 40 + threadIdx.x); });
    orders.insert(order);
  });
  SetOrder(Order::kSeeded, 12);
  std::vector<unsigned> other, again;
  RunThreads({3, 1, 1}, {40, 1, 1}, [&] { other.push_back(blockIdx.x * 40 + threadIdx.x); });
  RunThreads({3, 1, 1}, {40, 1, 1}, [&] { again.push_back(blockIdx.x * 40 + threadIdx.x); });
  SetOrder(Order::kForward);
  orders.insert(other);
  CHECK(orders.size() == 4);
  CHECK(other == again);
}

TEST_CASE("SyncThreads: what a block wrote before is there after it", "[emulation]") {
  ForEachOrder([] {
    std::vector<int> sums(3 * 96);
    RunThreads({3, 1, 1}, {96, 1, 1}, [&] {
      ZERO_SHARED(int, values, 96);
      int sum = 0;
      for (int round = 0; round < 4; ++round) {
        values[threadIdx.x] = static_cast<int>(blockIdx.x + threadIdx.x) + round;
        __syncthreads();
        for (int i = 0; i < 96; ++i) sum += values[i];
        __syncthreads();
      }
      sums[blockIdx.x * 96 + threadIdx.x] = sum;
    });
    for (int block = 0; block < 3; ++block) {
      const int expected = 4 * (95 * 96 / 2) + 96 * (4 * block + 6);
      CHECK(std::count(sums.begin() + block * 96, sums.begin() + block * 96 + 96, expected) == 96);
    }
  });
}

TEST_CASE("Shared memory: each declaration of each block is fresh and holds NaNs", "[emulation]") {
  int64_t wrong = 0;
  RunThreads(
      {2, 1, 1}, {32, 1, 1},
      [&] {
        ZERO_SHARED(float, first, 32);
        ZERO_SHARED(float, second, 32);
        float* const dynamic = static_cast<float*>(DynamicSharedMemory());
        if (first[threadIdx.x] == first[threadIdx.x]) ++wrong;
        if (second[threadIdx.x] == second[threadIdx.x]) ++wrong;
        if (dynamic[threadIdx.x] == dynamic[threadIdx.x]) ++wrong;
        first[threadIdx.x] = 1;
        second[threadIdx.x] = 2;
        dynamic[threadIdx.x] = 3;
        __syncthreads();
        const unsigned other = 31 - threadIdx.x;
        if (first[other] != 1 || second[other] != 2 || dynamic[other] != 3) ++wrong;
      },
      32 * sizeof(float));
  CHECK(wrong == 0);
}

TEST_CASE("Shuffles: each kind takes the value of the lane that CUDA documents", "[emulation]") {
  const int width = GENERATE(4, 16, 32);
  ForEachOrder([width] {
    int64_t wrong = 0;
    RunThreads({1, 1, 1}, {64, 1, 1}, [&] {
      const int own = static_cast<int>(Lane());
      const int base = own / width * width;
      const int value = 100 * static_cast<int>(threadIdx.x / 32) + own;
      const int warp = value - own;
      if (__shfl_sync(kAll, value, 1, width) != warp + base + 1) ++wrong;
      if (__shfl_sync(kAll, value, width + 2, width) != warp + base + 2) ++wrong;
      const int up = own - 3 >= base ? own - 3 : own;
      if (__shfl_up_sync(kAll, value, 3, width) != warp + up) ++wrong;
      const int down = own + 3 < base + width ? own + 3 : own;
      if (__shfl_down_sync(kAll, value, 3, width) != warp + down) ++wrong;
      if (__shfl_xor_sync(kAll, value, 2, width) != warp + (own ^ 2)) ++wrong;
      if (__shfl_xor_sync(kAll, 0.5 * value, 1, width) != 0.5 * (warp + (own ^ 1))) ++wrong;
    });
    CHECK(wrong == 0);
  });
}

TEST_CASE("Shuffles: halves of a warp meet on their own", "[emulation]") {
  ForEachOrder([] {
    int64_t wrong = 0;
    RunThreads({1, 1, 1}, {32, 1, 1}, [&] {
      const unsigned half = Lane() < 16 ? 0x0000FFFFu : 0xFFFF0000u;
      int sum = static_cast<int>(Lane());
      // The upper half meets more often than the lower one.
      for (int round = 0; round < (Lane() < 16 ? 1 : 3); ++round) {
        for (int lanes = 8; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(half, sum, lanes);
      }
      if (sum != (Lane() < 16 ? 120 : (16 * 16 + 120) * 256)) ++wrong;
    });
    CHECK(wrong == 0);
  });
}

TEST_CASE("Shuffles: a lane outside of the mask gives garbage", "[emulation]") {
  int64_t garbage = 0;
  RunThreads({1, 1, 1}, {32, 1, 1}, [&] {
    if (Lane() >= 8) return;
    if (__shfl_sync(0xFFu, 1, 20) != 1) ++garbage;
  });
  CHECK(garbage == 8);
}

TEST_CASE("Votes: ballot, any and all count the lanes that are there", "[emulation]") {
  ForEachOrder([] {
    int64_t wrong = 0;
    RunThreads({1, 1, 1}, {40, 1, 1}, [&] {
      // The second warp has 8 lanes, of which two leave at once.
      if (threadIdx.x >= 38) return;
      const unsigned expected = threadIdx.x < 32 ? 0x55555555u : 0x15u;
      if (__ballot_sync(kAll, Lane() % 2 == 0) != expected) ++wrong;
      if (__any_sync(kAll, threadIdx.x == 3) != (threadIdx.x < 32 ? 1 : 0)) ++wrong;
      if (__all_sync(kAll, threadIdx.x != 3) != (threadIdx.x < 32 ? 0 : 1)) ++wrong;
    });
    CHECK(wrong == 0);
  });
}

TEST_CASE("Atomics: every thread's change arrives", "[emulation]") {
  int sum = 0;
  float float_sum = 0;
  int smallest = 1000;
  unsigned long long largest = 0;
  int last = -1;
  RunThreads({4, 1, 1}, {100, 1, 1}, [&] {
    atomicAdd(&sum, static_cast<int>(threadIdx.x));
    atomicAdd(&float_sum, 0.5f);
    atomicMin(&smallest, static_cast<int>(threadIdx.x + 7));
    atomicMax(&largest, blockIdx.x * 100 + threadIdx.x);
    atomicCAS(&last, -1, static_cast<int>(threadIdx.x));
  });
  CHECK(sum == 4 * 4950);
  CHECK(float_sum == 200);
  CHECK(smallest == 7);
  CHECK(largest == 399);
  CHECK(last == 0);
}

template <class Body>
std::string FailureOf(const Body& body) {
  try {
    RunThreads({2, 1, 1}, {64, 1, 1}, body);
  } catch (const std::exception& failure) {
    return failure.what();
  }
  return "";
}

TEST_CASE("RunGrid: threads that leave before a barrier are reported", "[emulation]") {
  const std::string failure = FailureOf([] {
    if (threadIdx.x >= 60) return;
    __syncthreads();
  });
  CHECK(failure ==
        "kernel, block (0, 0, 0): threads can never go on: 60 from (0, 0, 0) on wait at "
        "__syncthreads, 4 from (60, 0, 0) on have left the kernel");
}

TEST_CASE("RunGrid: lanes that wait at different places are reported", "[emulation]") {
  const std::string failure = FailureOf([] {
    if (threadIdx.x == 5) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  });
  CHECK_THAT(failure, ContainsSubstring("1 from (5, 0, 0) on wait at __syncthreads, 31 from "
                                        "(0, 0, 0) on wait for lanes of their warp"));
}

TEST_CASE("RunGrid: a mask without the lane that gives it is reported", "[emulation]") {
  CHECK_THAT(FailureOf([] { __syncwarp(0x1u); }),
             ContainsSubstring("thread (1, 0, 0) is not in the mask that it gives"));
}

TEST_CASE("RunGrid: runs the next grid after one that failed", "[emulation]") {
  REQUIRE(FailureOf([] { __syncwarp(0x1u); }) != "");
  int ran = 0;
  RunThreads({1, 1, 1}, {33, 1, 1}, [&] {
    __syncthreads();
    ++ran;
  });
  CHECK(ran == 33);
}

TEST_CASE("Fibers: threads of several streams at once keep their indices apart",
          "[emulation][thread]") {
  std::vector<std::thread> threads;
  std::vector<int64_t> wrong(3, 0);
  for (size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&wrong, i] {
      const unsigned size = static_cast<unsigned>(3 + 5 * i);
      for (int round = 0; round < 20; ++round) {
        RunThreads({2, 1, 1}, {size, 1, 1}, [&] {
          const unsigned before = threadIdx.x;
          __syncthreads();
          if (threadIdx.x != before || blockDim.x != size) ++wrong[i];
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int64_t>(3, 0));
}

}  // namespace
}  // namespace zero::emulation
