// The update kernel over a range of this rank's part of a segment, wherever its memory is.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/step_scalars.h"
#include "zero/context.h"

namespace zero {

// Memory of the range's first element. On the device, or all of it on the host.
struct UpdateMemory {
  const void* gradient = nullptr;  // in the stored dtype
  void* weight = nullptr;
  void* master = nullptr;  // fp32, or the remainder of a split one; null where there is none
  float* moment1 = nullptr;
  float* moment2 = nullptr;
  const uint8_t* groups = nullptr;
  const StepScalars* scalars = nullptr;
  const GroupScalars* rows = nullptr;
};

// Enqueues the update of elements [first, first + count), multiples of 64, of what this rank holds
// states for of a segment: its slice, or in stage 0 all of it.
absl::Status EnqueueUpdate(const Stream& stream, const Context& context, int unit, int segment,
                           int64_t first, int64_t count, const UpdateMemory& memory);

}  // namespace zero
