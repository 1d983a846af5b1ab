// The ProcessGroup over NCCL.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "collectives/calls_in_flight.h"
#include "collectives/nccl_communicator.h"
#include "collectives/nccl_group.h"
#include "collectives/nccl_identity.h"
#include "collectives/roll_call.h"
#include "collectives/watchdog.h"

namespace zero {

class NcclRank : public ProcessGroup, private Watched {
 public:
  NcclRank(const NcclApi& api, CudaDevice* device, ControlChannel* control,
           absl::Duration deadline);
  ~NcclRank() override;

  // Allocates, starts the watch and NCCL, and exchanges a few bytes. Once, before anything else.
  absl::Status Start(absl::Span<const NcclIdentity> identities);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  absl::Duration deadline() const override { return deadline_; }
  absl::Status AllToAll(const Stream& stream, const char* name,
                        absl::Span<const AllToAllPiece> pieces) override;
  absl::Status AllGather(const Stream& stream, const char* name,
                         absl::Span<const AllGatherPiece> pieces) override;
  absl::Status Barrier(const Stream& stream, const char* name) override;
  bool has_native_reduction() const override { return true; }
  absl::Status ReduceScatter(const Stream& stream, const char* name,
                             absl::Span<const ReduceScatterPiece> pieces) override;
  bool single_host() const override { return local_ranks_ == size_; }
  const int32_t* failure_flag() const override { return flag_.as<int32_t>(); }
  void Abort(const absl::Status& reason) override;
  absl::Status Health() const override;
  TrafficTable traffic() const override;

 private:
  struct Shape;  // what a call is named and counted by

  absl::Status Allocate();
  absl::Status SelfTest();
  absl::Status ExchangeTestBytes();
  absl::Status Call(const Stream& stream, const Shape& shape,
                    absl::FunctionRef<void(NcclCalls&)> make_calls);
  absl::Status Enqueue(const Stream& stream, const std::string& what,
                       absl::FunctionRef<void(NcclCalls&)> make_calls);
  void Count(const Shape& shape);
  void Check() override;  // the watchdog's
  // Asks the ranks who did not make a call. Waits for them, or until the group fails.
  absl::Status FindMissing(const LateCall& call);
  // The failure, with the call that it ended.
  absl::Status During(const absl::Status& failure) const;

  CudaDevice* const device_;
  ControlChannel* const control_;
  const int rank_;
  const int size_;
  const absl::Duration deadline_;
  absl::Duration limit_;  // of the calls made now
  int local_ranks_ = 0;
  bool watched_ = false;
  Buffer flag_;     // int32, of the host
  Buffer scratch_;  // a byte of each rank, for barriers
  std::string id_;  // of the group, to all ranks
  CallsInFlight calls_;
  std::optional<RollCall> late_;  // the watchdog's
  NcclCommunicator communicator_;

  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::atomic<bool> aborting_{false};
  std::thread::id aborter_;  // set with aborting_
  absl::Status failure_;     // written once, before failed_
  std::atomic<bool> failed_{false};
  bool aborted_ = false;  // nothing runs any more
  TrafficTable traffic_;
};

}  // namespace zero
