#include "collectives/nccl_hints.h"

#include <sys/statvfs.h>

#include "absl/strings/str_cat.h"

namespace zero {
namespace {

// One segment that two ranks of a host talk through, rounded up from what NCCL asks for.
constexpr int64_t kShmSegment = int64_t{10} << 20;

}  // namespace

std::string NcclHints(int local_ranks, const std::string& shm_folder) {
  std::string text =
      "; worth trying, one at a time: NCCL_P2P_DISABLE=1 (GPUs that cannot reach each other), "
      "NCCL_SHM_DISABLE=1 (shared memory), NCCL_IB_DISABLE=1 (InfiniBand), NCCL_SOCKET_IFNAME=<the "
      "interface that all hosts share>; NCCL_DEBUG=INFO shows what NCCL does";
  struct statvfs info = {};
  if (local_ranks < 2 || statvfs(shm_folder.c_str(), &info) != 0) return text;
  const int64_t free_bytes = static_cast<int64_t>(info.f_bavail * info.f_frsize);
  const int64_t needed = kShmSegment * local_ranks * (local_ranks - 1);
  if (free_bytes >= needed) return text;
  absl::StrAppend(&text, "; ", shm_folder, " has ", free_bytes, " bytes free, ", local_ranks,
                  " ranks on this host may need ", needed,
                  ": enlarge it (docker: --shm-size, or mount -o remount,size=<bytes> ", shm_folder,
                  ")");
  return text;
}

}  // namespace zero
