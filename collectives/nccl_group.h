// Ranks that are processes with a GPU each, over NCCL.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/control_channel.h"
#include "collectives/process_group.h"
#include "device/cuda_device.h"

namespace zero {

struct NcclOptions {
  absl::Duration deadline = absl::Minutes(10);
};

// The group of the ranks that meet in `control`, each with a GPU of its own. Every rank calls it;
// blocks until all have, and have exchanged a few bytes over NCCL. `device` and `control` outlive
// the group; the group outlives the streams' work. Destroying it waits for the other ranks, no
// longer than the deadline, unless it has failed. One process per GPU: ranks that are threads of
// one process can have a group too, but CUDA may make them wait for each other.
//
// A collective that fails does not fail its stream: the group sets its failure_flag, on every rank
// that can be reached, and then lets the stream go on with anything in the memory received into. A
// thread of the process, shared by all groups, watches over deadlines, NCCL's own errors and ranks
// that died. When a call is late the ranks are asked over `control` where they are, so that the
// error names those that did not come; that takes at most two seconds more. Ranks whose calls
// differ are found by CheckedGroup (checked_group.h) only. Calls block the host only while NCCL
// takes them in, at first use of a connection for as long as the other ranks need to come.
//
// kUnimplemented: this build, or this machine, has no NCCL, or one before 2.18 or after 2.x.
// kFailedPrecondition, the same on every rank: two ranks have one GPU, or different versions of
// NCCL; CUDA_LAUNCH_BLOCKING is set. kDeadlineExceeded or kAborted: the exchange failed; the
// message says which variables are worth trying.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateNcclGroup(CudaDevice* device,
                                                              ControlChannel* control,
                                                              const NcclOptions& options = {});

}  // namespace zero
