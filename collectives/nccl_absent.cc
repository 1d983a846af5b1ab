#include "collectives/nccl_group.h"

namespace zero {

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateNcclGroup(CudaDevice*, ControlChannel*,
                                                              const NcclOptions&) {
  return absl::UnimplementedError(
      "this build has no NCCL (nccl.h was not found); processes can meet over Gloo on --device "
      "host, ranks on one GPU as threads (--ranks)");
}

}  // namespace zero
