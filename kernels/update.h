// What the update kernels share.
#pragma once

#include "absl/status/status.h"
#include "kernels/check.h"
#include "kernels/host_loop.h"
#include "kernels/master_kind.h"

namespace zero {

// Checks what all updates have; `kernel` is named in the message.
absl::Status CheckUpdate(const char* kernel, const UpdateArguments& arguments);

}  // namespace zero
