// Of builds without liburing.
#include "io/disk_ring.h"

namespace zero {

struct DiskRing::Ring {};

absl::StatusOr<std::unique_ptr<DiskRing>> DiskRing::Create(int /*depth*/) {
  return absl::UnimplementedError("this build has no io_uring");
}

DiskRing::DiskRing(std::unique_ptr<Ring> ring) : ring_(std::move(ring)) {}

DiskRing::~DiskRing() = default;

absl::Status DiskRing::Run(absl::Span<DiskBlock> /*blocks*/, const DiskFile& /*file*/,
                           bool /*writes*/) {
  return absl::UnimplementedError("this build has no io_uring");
}

}  // namespace zero
