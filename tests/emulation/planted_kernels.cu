// Kernels with the bugs that the emulation is there to find, one each, and a right one. The program
// runs one of them in every order of the threads and says whether results were right.
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "kernels/launch.cuh"
#include "tests/emulation/grid.h"

namespace {

constexpr int kThreads = 64;

// Reverses each run of kThreads values through shared memory.
template <bool kWithBarrier>
__global__ void ReverseKernel(int* values) {
  ZERO_SHARED(int, tile, kThreads);
  const int thread = static_cast<int>(threadIdx.x);
  int* const run = values + blockIdx.x * kThreads;
  tile[thread] = run[thread];
  if constexpr (kWithBarrier) __syncthreads();
  run[thread] = tile[kThreads - 1 - thread];
}

// Writes one element too many.
__global__ void PastHeapKernel(int* values) {
  const int thread = static_cast<int>(threadIdx.x);
  values[blockIdx.x * kThreads + thread + 1] = thread;
}

__global__ void PastSharedKernel(int* values) {
  ZERO_SHARED(int, tile, kThreads);
  const int thread = static_cast<int>(threadIdx.x);
  int* const past = tile;  // without the array's length
  past[thread + 1] = thread;
  __syncthreads();
  values[thread] = tile[thread];
}

__attribute__((noinline)) __device__ void Set(int* element) { *element = 5; }

// After a barrier: other threads have run on their stacks since.
__global__ void PastLocalKernel(int* values) {
  int local[4] = {1, 2, 3, 4};
  __syncthreads();
  Set(local + threadIdx.x);
  __syncthreads();
  values[threadIdx.x] = local[threadIdx.x % 4];
}

// Threads leave without coming to a barrier that the others wait at.
__global__ void LeavingKernel(int* values) {
  const int thread = static_cast<int>(threadIdx.x);
  if (values[thread] >= 60) return;
  __syncthreads();
  values[thread] = 0;
}

using Kernel = void (*)(int*);

struct Planted {
  const char* name;
  Kernel kernel;
};
constexpr Planted kPlanted[] = {
    {"right", &ReverseKernel<true>},  {"missing_barrier", &ReverseKernel<false>},
    {"past_heap", &PastHeapKernel},   {"past_shared", &PastSharedKernel},
    {"past_local", &PastLocalKernel}, {"leaves_before_barrier", &LeavingKernel},
};

struct Call {
  Kernel kernel;
  int* values;
};

// Whether the kernel reverses each of two blocks of values.
bool Reverses(const Planted& planted) {
  std::vector<int> values(2 * kThreads);
  for (int i = 0; i < 2 * kThreads; ++i) values[i] = i;
  const Call call{planted.kernel, values.data()};
  zero::emulation::Grid grid;
  grid.name = planted.name;
  grid.blocks = {2, 1, 1};
  grid.threads = {kThreads, 1, 1};
  grid.dynamic_shared_bytes = 0;
  grid.body = [](const void* argument) {
    const Call* const each = static_cast<const Call*>(argument);
    each->kernel(each->values);
  };
  grid.argument = &call;
  zero::emulation::RunGrid(grid);
  bool right = true;
  for (int i = 0; i < kThreads; ++i) {
    right = right && values[i] == kThreads - 1 - i;
    right = right && values[kThreads + i] == 2 * kThreads - 1 - i;
  }
  return right;
}

void RunPlanted(const Planted& planted) {
  zero::emulation::SetFiberForEachThread(true);
  for (const auto& [name, order] : {std::pair("forward", zero::emulation::Order::kForward),
                                    std::pair("reverse", zero::emulation::Order::kReverse),
                                    std::pair("seeded", zero::emulation::Order::kSeeded)}) {
    zero::emulation::SetOrder(order, 3);
    const bool right = Reverses(planted);
    std::printf("%s: %s\n", name, right ? "right" : "wrong");
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (const Planted& planted : kPlanted) {
    if (argc != 2 || std::string(argv[1]) != planted.name) continue;
    try {
      RunPlanted(planted);
      return 0;
    } catch (const std::exception& failure) {
      std::fprintf(stderr, "%s\n", failure.what());
      return 1;
    }
  }
  std::fprintf(stderr, "usage: planted_kernels KERNEL, one of");
  for (const Planted& planted : kPlanted) std::fprintf(stderr, " %s", planted.name);
  std::fprintf(stderr, "\n");
  return 2;
}
