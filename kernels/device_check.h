// Where a kernel chooses its back end. Only the host's exists in this version.
#pragma once

#include "absl/strings/str_cat.h"
#include "device/device.h"
#include "device/status.h"

namespace zero {

inline absl::Status RequireHost(const Stream& stream, const char* kernel) {
  if (stream.device().kind() == DeviceKind::kHost) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(kernel, ": this build has kernels for host devices only"));
}

}  // namespace zero
