// Runs the grid of a CUDA kernel on the calling thread, each of its threads as a fiber.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace zero::emulation {

// The order in which threads of a block, and blocks of a grid, get their turn. A kernel that lacks
// a barrier gives another result in some order. For grids that start from now on.
enum class Order { kForward, kReverse, kSeeded };
void SetOrder(Order order, uint64_t seed = 0);

// ThreadSanitizer takes what one fiber does for ordered, so that it sees a race only between
// threads with fibers of their own. Those cost half a millisecond each there, once: without this,
// threads share one as long as none of them waits.
void SetFiberForEachThread(bool on);

struct Index {
  unsigned x, y, z;
};

struct Grid {
  const char* name;
  Index blocks;
  Index threads;
  size_t dynamic_shared_bytes;
  void (*body)(const void*);  // one thread of the kernel
  const void* argument;
};

// Blocks run one after the other. Throws std::runtime_error that names the kernel and its threads
// when one can never go on: a barrier that others have left the kernel without, a shuffle whose
// mask names a lane that waits elsewhere.
void RunGrid(const Grid& grid);

// What the intrinsics of cuda_emulation.h are made of. For threads of a grid only.
void SyncThreads();

enum class WarpOperation { kSync, kShuffle, kShuffleUp, kShuffleDown, kShuffleXor, kBallot };
// Meets the lanes in `mask` and gives this lane's result. Lanes that left the kernel are not waited
// for; what is read from them, or from a lane outside of `mask`, is garbage.
uint64_t MeetWarp(WarpOperation operation, unsigned mask, uint64_t value, int argument, int width);
// The lanes in `mask` that have not left the kernel.
unsigned LanesPresent(unsigned mask);

// Shared memory of the block for the declaration that `key` stands for, filled with 0xFF at first.
void* SharedMemory(const void* key, size_t bytes);
void* DynamicSharedMemory();

}  // namespace zero::emulation
