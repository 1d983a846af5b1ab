// One rank's NCCL communicator.
#pragma once

#include <mutex>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/nccl_api.h"
#include "device/cuda_device.h"

namespace zero {

// The calls that make up one NCCL group. After the first that fails the rest is left out. Counts
// are of elements of `type`; a peer is a rank.
class NcclCalls {
 public:
  NcclCalls(const NcclApi& api, ncclComm_t communicator, const Stream& stream,
            const std::string& what)
      : api_(api), communicator_(communicator), stream_(stream), what_(what) {}

  void SendBytes(const void* from, int64_t bytes, int peer);
  void ReceiveBytes(void* to, int64_t bytes, int peer);
  void AllGatherBytes(const void* from, void* to, int64_t bytes);
  void ReduceSum(const void* from, void* to, int64_t count, ncclDataType_t type, int root);
  void ReduceScatterSum(const void* from, void* to, int64_t count, ncclDataType_t type);
  const absl::Status& status() const { return status_; }

 private:
  template <class F>
  void Call(const char* function, const F& call);

  const NcclApi& api_;
  const ncclComm_t communicator_;
  const Stream& stream_;
  const std::string& what_;
  absl::Status status_;
};

// Does not block inside NCCL: what is not finished at once is polled, until a deadline passes or
// Abort is called. NCCL allows one thread at a time in a communicator, which a lock sees to; it is
// held for one poll, or while the calls of one group are made.
class NcclCommunicator {
 public:
  NcclCommunicator(const NcclApi& api, CudaDevice* device) : api_(api), device_(device) {}
  // Aborts what Finish did not end.
  ~NcclCommunicator() { Abort(); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Meets the other ranks. Once.
  absl::Status Start(const ncclUniqueId& id, int size, int rank, absl::Duration deadline);

  // Makes the calls as one group. When it returns OK they are in `stream`, and not before: an event
  // recorded now comes after them. Errors begin with `what`.
  absl::Status Run(const Stream& stream, const std::string& what, absl::Duration deadline,
                   absl::FunctionRef<void(NcclCalls&)> make_calls);

  // What went wrong in the background, beginning with `what`. OK without a communicator. Any
  // thread.
  absl::Status AsyncError(const std::string& what);

  // Ends the communicator together with the other ranks; nothing may be in flight.
  absl::Status Finish(absl::Duration deadline);

  // Ends it alone, work in flight included; streams go on, with anything in the memory received
  // into. Later calls return kAborted. Any thread.
  void Abort();

 private:
  // Polls until NCCL is done with the last call.
  absl::Status Await(const std::string& what, absl::Duration deadline);
  // mutex_ held, and there is a communicator.
  absl::Status Poll(const std::string& what, ncclResult_t* state);

  const NcclApi& api_;
  CudaDevice* const device_;
  std::mutex mutex_;
  ncclComm_t communicator_ = nullptr;
  bool aborted_ = false;  // also before the start
};

}  // namespace zero
