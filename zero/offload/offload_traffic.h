// What offloading moves, before anything runs.
#pragma once

#include <cstdint>

#include "zero/config.h"
#include "zero/layout.h"
#include "zero/offload/offload_plan.h"

namespace zero {

// Bytes of one rank: to and from its device, over the link to memory of the host; read from and
// written to its file.
struct OffloadTraffic {
  int64_t to_device = 0;
  int64_t from_device = 0;
  int64_t disk_read = 0;
  int64_t disk_written = 0;

  OffloadTraffic& operator+=(const OffloadTraffic& other);
};

// Of a gather of a unit's weights.
OffloadTraffic GatherTraffic(const Config& config, const UnitLayout& unit);

// Of a step of `micro_batches` training passes without its gathers: gradients out, and back where
// more are added to them; the update's scalars; records and weights.
OffloadTraffic UpdateTraffic(const Config& config, const Layout& layout, const OffloadPlan& plan,
                             int moments, int64_t micro_batches);

}  // namespace zero
