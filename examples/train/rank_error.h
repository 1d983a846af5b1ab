// An error with the number of the rank that had it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace zero::train {

// `status` as it is where every rank has the same: the optimizer has stopped the run, or an error
// that ranks told each other and that names the one that had it first.
inline absl::Status OfRank(int rank, const absl::Status& status) {
  const std::string message(status.message());
  const bool same = absl::IsOutOfRange(status) || absl::StartsWith(message, "rank ");
  return same ? status : absl::Status(status.code(), absl::StrCat("rank ", rank, ": ", message));
}

}  // namespace zero::train
