#include "device/processors.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/control_group.h"

namespace zero {
namespace {

// More than Linux can have.
constexpr int kMostCores = 16384;

struct CoreSet {
  CoreSet() : set(CPU_ALLOC(kMostCores)), bytes(CPU_ALLOC_SIZE(kMostCores)) {
    CPU_ZERO_S(bytes, set);
  }
  ~CoreSet() { CPU_FREE(set); }
  CoreSet(const CoreSet&) = delete;
  CoreSet& operator=(const CoreSet&) = delete;

  cpu_set_t* const set;
  const size_t bytes;
};

// Processors' worth of time that a quota leaves; infinity where there is none.
double Quota(const std::string& folder) {
  double quota = 0;
  double period = 0;
  std::ifstream both(folder + "/cpu.max");  // "max" is no number
  if (!(both >> quota >> period)) {
    std::ifstream first(folder + "/cpu.cfs_quota_us");
    std::ifstream second(folder + "/cpu.cfs_period_us");
    if (!(first >> quota) || !(second >> period)) quota = -1;  // as version 1 says "none"
  }
  return quota > 0 && period > 0 ? quota / period : std::numeric_limits<double>::infinity();
}

}  // namespace

absl::StatusOr<Processors> FindProcessors(const std::string& root) {
  const CoreSet found;
  if (found.set == nullptr || sched_getaffinity(0, found.bytes, found.set) != 0) {
    return absl::InternalError(absl::StrCat("the processors of this process: sched_getaffinity: ",
                                            std::generic_category().message(errno)));
  }
  Processors all;
  for (int core = 0; core < kMostCores; ++core) {
    if (CPU_ISSET_S(core, found.bytes, found.set)) all.cores.push_back(core);
  }
  double at_once = static_cast<double>(all.cores.size());
  for (const std::string& folder : ControlGroupFolders(root, "cpu")) {
    at_once = std::min(at_once, std::ceil(Quota(folder)));
  }
  all.at_once = std::max(1, static_cast<int>(at_once));
  return all;
}

Processors ShareOf(const Processors& all, int rank, int ranks) {
  const auto part = [ranks](size_t n, int r) {
    return static_cast<int>(static_cast<int64_t>(n) * r / ranks);
  };
  Processors share;
  const int begin = part(all.cores.size(), rank);
  const int end = std::max(begin + 1, part(all.cores.size(), rank + 1));
  share.cores.assign(all.cores.begin() + begin, all.cores.begin() + end);
  const auto at_once = static_cast<size_t>(all.at_once);
  share.at_once = std::clamp(part(at_once, rank + 1) - part(at_once, rank), 1,
                             static_cast<int>(share.cores.size()));
  return share;
}

absl::Status BindThread(pthread_t thread, const std::vector<int>& cores) {
  const CoreSet wanted;
  int error = wanted.set == nullptr ? ENOMEM : 0;
  for (const int core : cores) {
    if (core < 0 || core >= kMostCores) error = EINVAL;
    if (error == 0) CPU_SET_S(core, wanted.bytes, wanted.set);
  }
  if (error == 0) error = pthread_setaffinity_np(thread, wanted.bytes, wanted.set);
  if (error == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a thread cannot be bound to the cores {",
                                                 absl::StrJoin(cores, ", "),
                                                 "}: ", std::generic_category().message(error)));
}

}  // namespace zero
