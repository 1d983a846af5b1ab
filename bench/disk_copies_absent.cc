// Of builds without liburing.
#include "bench/disk_copies.h"

namespace zero::bench {

absl::StatusOr<double> CopyInPlace(const std::string& /*path*/, int64_t /*reads*/,
                                   int64_t /*writes*/) {
  return absl::UnimplementedError("this build has no io_uring");
}

}  // namespace zero::bench
