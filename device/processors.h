// The processors that this process may use, and how the ranks of a machine share them.
#pragma once

#include <pthread.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace zero {

struct Processors {
  std::vector<int> cores;  // that threads may run on, as Linux numbers them, rising
  // Threads that can run at once: fewer than cores where a control group has less of their time.
  // At least 1.
  int at_once = 1;

  bool operator==(const Processors&) const = default;
};

// Those of this process: what its thread may run on (sched_getaffinity), which is what whoever
// started it left it, and the quotas of its control groups, as the files of Linux below `root` say,
// rounded up. kInternal if the system does not tell.
absl::StatusOr<Processors> FindProcessors(const std::string& root = "");

// The part of rank `rank` of the `ranks` on this machine: neighbouring cores and a share of what
// runs at once, as equal as can be. More ranks than cores share them; each part has at least one.
// 0 <= rank < ranks, and `all` has cores.
Processors ShareOf(const Processors& all, int rank, int ranks);

// From now on `thread`, and the threads that it starts, run on these cores only. kInvalidArgument,
// and nothing changed, if this process may run on none of them.
absl::Status BindThread(pthread_t thread, const std::vector<int>& cores);

}  // namespace zero
