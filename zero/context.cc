#include "zero/context.h"

#include <utility>

#include "device/status.h"

namespace zero {

absl::Status ZeroNow(const Context& context, const Buffer& buffer) {
  ZERO_RETURN_IF_ERROR(context.device->Fill(*context.arithmetic, buffer.data(), 0, buffer.bytes()));
  return context.arithmetic->Synchronize();
}

absl::StatusOr<SegmentBlock> SegmentBlock::Create(const Context& context, const BlockLayout& layout,
                                                  MemoryCategory category, const char* what,
                                                  void* adopted) {
  SegmentBlock block;
  block.layout_ = &layout;
  block.rank_ = context.rank();
  if (adopted != nullptr) {
    block.memory_ = context.device->Adopt(adopted, layout.bytes, category);
    return block;
  }
  ZERO_ASSIGN_OR_RETURN(block.memory_, context.device->Allocate(layout.bytes, category, what));
  ZERO_RETURN_IF_ERROR(ZeroNow(context, block.memory_));
  return block;
}

char* SegmentBlock::at(int unit, int segment) const {
  const int64_t offset = layout_->offsets[unit][segment];
  return offset < 0 ? nullptr : memory_.bytes_at(offset);
}

char* SegmentBlock::slice(int unit, int segment, int64_t slice_elements,
                          int64_t element_bytes) const {
  char* const start = at(unit, segment);
  if (start == nullptr || layout_->sliced) return start;
  return start + rank_ * slice_elements * element_bytes;
}

}  // namespace zero
