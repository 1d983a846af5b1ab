// Whether a run fits into this machine, before it takes anything.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace zero::support {

// `ranks` on this machine need `bytes` each, a number that may be larger than any
// memory. kResourceExhausted, one line with the sum, if that is more than `limit` (HostMemoryLimit
// of device/host_memory.h).
absl::Status CheckMemory(int64_t ranks, double bytes, int64_t limit);

}  // namespace zero::support
