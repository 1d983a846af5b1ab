// Gloo groups of several ranks in one process, each with a rendezvous of its own over loopback.
#pragma once

#include "tests/collectives/group_kinds.h"

namespace zero::test {

absl::StatusOr<std::unique_ptr<GroupWorld>> MakeGlooWorld(int size, absl::Duration deadline);

}  // namespace zero::test
