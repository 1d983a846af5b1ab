// What the stage tests train on where CUDA and NCCL are stand-ins: the group kinds of the contract
// suite of collectives/.
#pragma once

#include <vector>

#include "tests/zero/backend.h"

namespace zero::test {

// Ranks as threads that share a GPU.
Backend LocalCudaBackend();
// A GPU for each rank.
Backend NcclBackend();

}  // namespace zero::test
