// Tells a verb called at the wrong time, or with wrong arguments, from one that failed halfway: not
// by the code, which an error of the device can have as well.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace zero {

inline constexpr const char* kMisusePayload = "zero/misuse";

// Marks an error that was found before anything was changed or enqueued.
inline absl::Status Misuse(absl::Status error) {
  error.SetPayload(kMisusePayload, absl::Cord());
  return error;
}

inline bool IsMisuse(const absl::Status& status) {
  return status.GetPayload(kMisusePayload).has_value();
}

// The error as the user gets it.
inline absl::Status WithoutMark(absl::Status error) {
  error.ErasePayload(kMisusePayload);
  return error;
}

}  // namespace zero
