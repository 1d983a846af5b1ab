#include "kernels/zero_ranges.h"

#include <cstring>
#include <utility>

#include "kernels/device_check.h"

namespace zero {

absl::Status ZeroRanges(const Stream& stream, std::vector<ByteRange> ranges) {
  if (ranges.empty()) return absl::OkStatus();
  if (OnCuda(stream)) return cuda::ZeroRanges(stream, ranges);
  return stream.Enqueue("zero_ranges", [ranges = std::move(ranges)] {
    for (const ByteRange& range : ranges) {
      std::memset(range.begin, 0, static_cast<size_t>(range.bytes));
    }
    return absl::OkStatus();
  });
}

}  // namespace zero
