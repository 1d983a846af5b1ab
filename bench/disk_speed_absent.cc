// Of builds without liburing.
#include "bench/disk_speed.h"

namespace zero::bench {

absl::StatusOr<DiskSpeed> MeasureDisk(const std::string& /*folder*/, int64_t /*bytes*/) {
  return absl::UnimplementedError("this build has no io_uring");
}

}  // namespace zero::bench
