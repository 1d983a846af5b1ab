// The functions of NCCL that this library calls, as a table: found in the library at run time, or
// supplied by a test. Only collectives/nccl_* includes this.
#pragma once

#include <nccl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace zero {

struct NcclApi {
  int version = 0;  // as ncclGetVersion codes it: 22809 is 2.28.9

  decltype(&::ncclGetVersion) get_version = nullptr;
  decltype(&::ncclGetErrorString) get_error_string = nullptr;
  decltype(&::ncclGetLastError) get_last_error = nullptr;
  decltype(&::ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&::ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&::ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&::ncclCommFinalize) comm_finalize = nullptr;
  decltype(&::ncclCommDestroy) comm_destroy = nullptr;
  decltype(&::ncclCommAbort) comm_abort = nullptr;
  decltype(&::ncclGroupStart) group_start = nullptr;
  decltype(&::ncclGroupEnd) group_end = nullptr;
  decltype(&::ncclSend) send = nullptr;
  decltype(&::ncclRecv) recv = nullptr;
  decltype(&::ncclAllGather) all_gather = nullptr;
  decltype(&::ncclReduce) reduce = nullptr;
  decltype(&::ncclReduceScatter) reduce_scatter = nullptr;
};

// The NCCL of this machine, found once: libnccl.so.2 on the loader's path. kUnimplemented if there
// is none, if it lacks a function, or if CheckNcclVersion refuses it. Any thread.
absl::StatusOr<const NcclApi*> LoadNccl();

// The table of another file. The library stays loaded.
absl::StatusOr<NcclApi> LoadNcclFrom(const char* file);

// kUnimplemented outside [2.18, 3). Communicators that do not block are not dependable before;
// version 3 may change every type. Versions below 2.27.5 write past the buffer in all-reduces of
// bf16, which nothing here calls.
absl::Status CheckNcclVersion(int version);

}  // namespace zero
