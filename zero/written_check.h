// Which rank produced inf or NaN (Config::check_gradients).
#pragma once

#include <cstdint>

#include "device/handover.h"
#include "kernels/step_scalars.h"
#include "zero/context.h"

namespace zero {

class ParameterIndex;

// Looks through what this rank wrote, before it is added to what other ranks did.
class WrittenCheck {
 public:
  // Device memory: `scratch` for the chunks of the longest whole segment, `part` and
  // `first_written` one each.
  struct Memory {
    NormPartial* scratch = nullptr;
    NormPartial* part = nullptr;
    int64_t* first_written = nullptr;
  };
  WrittenCheck(const Context& context, const ParameterIndex* index, Memory memory)
      : context_(context), index_(index), memory_(memory), order_(context.device) {}

  // Enqueues the check of a whole segment; `stream` may read it.
  absl::Status Check(const Stream& stream, int unit, int segment, const void* written);

  // Of what has been found.
  Handover& order() { return order_; }

 private:
  const Context& context_;
  const ParameterIndex* index_;
  const Memory memory_;
  Handover order_;
};

}  // namespace zero
