#include "examples/support/memory.h"

#include "absl/strings/str_format.h"

namespace zero::support {

absl::Status CheckMemory(int64_t ranks, double bytes, int64_t limit) {
  const double all = static_cast<double>(ranks) * bytes;
  if (all <= static_cast<double>(limit)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%d rank%s x %.2f GB = %.2f GB of memory, but this machine has %.2f GB for them", ranks,
      ranks == 1 ? "" : "s", bytes / 1e9, all / 1e9, static_cast<double>(limit) / 1e9));
}

}  // namespace zero::support
