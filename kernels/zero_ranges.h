// Zeroes many short runs of memory in one operation: the gaps of a layout.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "device/stream.h"

namespace zero {

struct ByteRange {
  void* begin = nullptr;
  int64_t bytes = 0;
};

// Enqueues; the memory must live until `stream` has run it. No ranges: does nothing.
absl::Status ZeroRanges(const Stream& stream, std::vector<ByteRange> ranges);

}  // namespace zero
