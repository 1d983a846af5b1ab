// What worlds on CUDA stand on. A program links one implementation: the stand-ins, or this machine.
#pragma once

#include <cstdint>

namespace zero::test {

// On stand-ins, worlds made from now on have operations that begin up to `delay_us` microseconds
// late, each by an amount of its own that `seed` decides. On a GPU, nothing.
void SetDelays(int delay_us, uint64_t seed);

// Before a world's first device: as many GPUs as new.
void PrepareCudaMachine(int gpus);
// After its last: nothing was left, and nothing was done that CUDA or NCCL does not allow.
void CheckCudaMachine();

}  // namespace zero::test
