// NCCL's results as statuses.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "collectives/nccl_api.h"

namespace zero {

// OK for ncclSuccess and ncclInProgress. Else "<what>: <function>: <NCCL's text>: <its last
// error>":
//   ncclSystemError, ncclRemoteError         kAborted       a peer or the network is gone
//   ncclInvalidUsage                         kFailedPrecondition
//   anything else                            kInternal
absl::Status NcclStatus(const NcclApi& api, ncclResult_t result, const std::string& what,
                        const char* function);

}  // namespace zero
