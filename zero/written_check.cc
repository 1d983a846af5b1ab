#include "zero/written_check.h"

#include "device/status.h"
#include "kernels/decide.h"
#include "kernels/kernels.h"
#include "zero/step_outcome.h"

namespace zero {

absl::Status WrittenCheck::Check(const Stream& stream, int unit, int segment, const void* written) {
  const Segment& layout = context_.unit(unit).segments[segment];
  return order_.Write(stream, [&]() -> absl::Status {
    ZERO_RETURN_IF_ERROR(
        Norm(stream, written, layout.dtype, layout.elements, memory_.scratch, memory_.part));
    return NoteNonFinite(stream, memory_.part, index_->base(unit, segment), memory_.first_written);
  });
}

}  // namespace zero
