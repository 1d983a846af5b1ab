#include "collectives/nccl_status.h"

#include "absl/strings/str_cat.h"

namespace zero {
namespace {

absl::StatusCode CodeOf(ncclResult_t result) {
  switch (result) {
    case ncclSystemError:
    case ncclRemoteError:
      return absl::StatusCode::kAborted;
    case ncclInvalidUsage:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status NcclStatus(const NcclApi& api, ncclResult_t result, const std::string& what,
                        const char* function) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  std::string text = absl::StrCat(what, ": ", function, ": ", api.get_error_string(result));
  // The last error of this thread or process; the communicator is not looked at.
  const char* const detail = api.get_last_error(nullptr);
  if (detail != nullptr && detail[0] != '\0') absl::StrAppend(&text, ": ", detail);
  return absl::Status(CodeOf(result), text);
}

}  // namespace zero
