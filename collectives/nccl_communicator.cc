#include "collectives/nccl_communicator.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/nccl_status.h"
#include "device/cuda_context.h"
#include "device/cuda_stream.h"
#include "device/status.h"

namespace zero {
namespace {

absl::Status Gone(const std::string& what) {
  return absl::AbortedError(absl::StrCat(what, ": the communicator was aborted"));
}

}  // namespace

template <class F>
void NcclCalls::Call(const char* function, const F& call) {
  if (status_.ok()) status_ = NcclStatus(api_, call(), what_, function);
}

void NcclCalls::SendBytes(const void* from, int64_t bytes, int peer) {
  Call("ncclSend", [&] {
    return api_.send(from, static_cast<size_t>(bytes), ncclInt8, peer, communicator_,
                     NativeStream(stream_));
  });
}

void NcclCalls::ReceiveBytes(void* to, int64_t bytes, int peer) {
  Call("ncclRecv", [&] {
    return api_.recv(to, static_cast<size_t>(bytes), ncclInt8, peer, communicator_,
                     NativeStream(stream_));
  });
}

void NcclCalls::AllGatherBytes(const void* from, void* to, int64_t bytes) {
  Call("ncclAllGather", [&] {
    return api_.all_gather(from, to, static_cast<size_t>(bytes), ncclInt8, communicator_,
                           NativeStream(stream_));
  });
}

void NcclCalls::ReduceSum(const void* from, void* to, int64_t count, ncclDataType_t type,
                          int root) {
  Call("ncclReduce", [&] {
    return api_.reduce(from, to, static_cast<size_t>(count), type, ncclSum, root, communicator_,
                       NativeStream(stream_));
  });
}

void NcclCalls::ReduceScatterSum(const void* from, void* to, int64_t count, ncclDataType_t type) {
  Call("ncclReduceScatter", [&] {
    return api_.reduce_scatter(from, to, static_cast<size_t>(count), type, ncclSum, communicator_,
                               NativeStream(stream_));
  });
}

absl::Status NcclCommunicator::Start(const ncclUniqueId& id, int size, int rank,
                                     absl::Duration deadline) {
  const std::string what = absl::StrCat("start of NCCL on rank ", rank);
  {
    const CurrentCudaDevice current(device_->id());
    std::lock_guard<std::mutex> lock(mutex_);
    if (aborted_) return Gone(what);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ZERO_RETURN_IF_ERROR(
        NcclStatus(api_, api_.comm_init_rank_config(&communicator_, size, id, rank, &config), what,
                   "ncclCommInitRankConfig"));
  }
  return Await(what, deadline);
}

absl::Status NcclCommunicator::Run(const Stream& stream, const std::string& what,
                                   absl::Duration deadline,
                                   absl::FunctionRef<void(NcclCalls&)> make_calls) {
  {
    const CurrentCudaDevice current(device_->id());
    std::lock_guard<std::mutex> lock(mutex_);
    if (communicator_ == nullptr) return Gone(what);
    ZERO_RETURN_IF_ERROR(NcclStatus(api_, api_.group_start(), what, "ncclGroupStart"));
    NcclCalls calls(api_, communicator_, stream, what);
    make_calls(calls);
    // Also after a failure: a group that stays open would swallow every later call.
    const ncclResult_t ended = api_.group_end();
    ZERO_RETURN_IF_ERROR(calls.status());
    ZERO_RETURN_IF_ERROR(NcclStatus(api_, ended, what, "ncclGroupEnd"));
  }
  return Await(what, deadline);
}

absl::Status NcclCommunicator::Poll(const std::string& what, ncclResult_t* state) {
  ZERO_RETURN_IF_ERROR(NcclStatus(api_, api_.comm_get_async_error(communicator_, state), what,
                                  "ncclCommGetAsyncError"));
  return NcclStatus(api_, *state, what, "NCCL");
}

absl::Status NcclCommunicator::Await(const std::string& what, absl::Duration deadline) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    ncclResult_t state = ncclSuccess;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (communicator_ == nullptr) return Gone(what);
      ZERO_RETURN_IF_ERROR(Poll(what, &state));
    }
    if (state != ncclInProgress) return absl::OkStatus();
    if (absl::FromChrono(std::chrono::steady_clock::now() - start) > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(what, ": NCCL was not ready within ", absl::FormatDuration(deadline),
                       ": another rank did not come, or cannot be reached"));
    }
    device_->Yield();
  }
}

absl::Status NcclCommunicator::AsyncError(const std::string& what) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (communicator_ == nullptr) return absl::OkStatus();
  ncclResult_t state = ncclSuccess;
  return Poll(what, &state);
}

absl::Status NcclCommunicator::Finish(absl::Duration deadline) {
  const std::string what = "end of NCCL";
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (communicator_ == nullptr) return absl::OkStatus();
    ZERO_RETURN_IF_ERROR(
        NcclStatus(api_, api_.comm_finalize(communicator_), what, "ncclCommFinalize"));
  }
  ZERO_RETURN_IF_ERROR(Await(what, deadline));
  std::lock_guard<std::mutex> lock(mutex_);
  if (communicator_ == nullptr) return Gone(what);
  return NcclStatus(api_, api_.comm_destroy(std::exchange(communicator_, nullptr)), what,
                    "ncclCommDestroy");
}

void NcclCommunicator::Abort() {
  ncclComm_t communicator = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
    communicator = std::exchange(communicator_, nullptr);
  }
  // Without the lock: it may take long, and the thread that polls must see that it is gone.
  // Its error tells nothing new: the communicator is lost either way.
  if (communicator != nullptr) api_.comm_abort(communicator);
}

}  // namespace zero
