#include "collectives/nccl_group.h"

namespace zero {

absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateNcclGroup(CudaDevice*, ControlChannel*,
                                                              const NcclOptions&) {
  return absl::UnimplementedError(
      "this build has no NCCL (nccl.h was not found); processes can meet over Gloo and compute on "
      "hosts, ranks that share a GPU can be threads of one process");
}

}  // namespace zero
