// Groups of ranks in one process whose streams are GPUs', on the stand-ins.
#pragma once

#include "tests/collectives/group_kinds.h"

namespace zero::test {

// Worlds made from now on have operations that begin up to `delay_us` microseconds late, each by an
// amount of its own that `seed` decides.
void SetStandinDelays(int delay_us, uint64_t seed);

// Ranks as threads that share one GPU.
absl::StatusOr<std::unique_ptr<GroupWorld>> MakeLocalOnGpu(int size, absl::Duration deadline);

// A GPU for each rank, and a rendezvous of its own over loopback.
absl::StatusOr<std::unique_ptr<GroupWorld>> MakeNcclWorld(int size, absl::Duration deadline);

}  // namespace zero::test
