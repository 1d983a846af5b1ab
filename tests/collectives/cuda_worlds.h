// Groups of ranks in one process whose streams are GPUs'.
#pragma once

#include "tests/collectives/group_kinds.h"

namespace zero::test {

// Ranks as threads that share one GPU.
absl::StatusOr<std::unique_ptr<GroupWorld>> MakeLocalOnGpu(int size, absl::Duration deadline);

// A GPU for each rank, and a rendezvous of its own over loopback.
absl::StatusOr<std::unique_ptr<GroupWorld>> MakeNcclWorld(int size, absl::Duration deadline);

}  // namespace zero::test
