// Finds ranks that call different collectives before they hang: a way to debug a trainer.
#pragma once

#include "collectives/process_group.h"
#include "collectives/rendezvous.h"

namespace zero {

// Passes every call on to another group, and says over the rendezvous what was called: index,
// operation, name and bytes of each piece. When two ranks have said something different for one
// index, both groups fail on every rank (kInvalidArgument) with the two ranks and calls that rank 0
// saw first. Waits for nothing, so that the streams' timing stays as it is; the message overtakes
// whatever waits for a call that does not fit.
class CheckedGroup : public ProcessGroup {
 public:
  // Both outlive it.
  CheckedGroup(ProcessGroup* group, Rendezvous* rendezvous);
  ~CheckedGroup() override;

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  absl::Duration deadline() const override { return group_->deadline(); }
  absl::Status AllToAll(const Stream& stream, const char* name,
                        absl::Span<const AllToAllPiece> pieces) override;
  absl::Status AllGather(const Stream& stream, const char* name,
                         absl::Span<const AllGatherPiece> pieces) override;
  bool has_native_reduction() const override { return group_->has_native_reduction(); }
  absl::Status ReduceScatter(const Stream& stream, const char* name,
                             absl::Span<const ReduceScatterPiece> pieces) override;
  bool has_ordered_reduction(DeviceKind kind) const override {
    return group_->has_ordered_reduction(kind);
  }
  absl::Status ReduceInOrder(const Stream& stream, const char* name,
                             absl::Span<const ReductionPiece> pieces) override;
  bool single_host() const override { return group_->single_host(); }
  const int32_t* failure_flag() const override { return group_->failure_flag(); }
  absl::Status Barrier(const Stream& stream, const char* name) override;
  void Abort(const absl::Status& reason) override { group_->Abort(reason); }
  absl::Status Health() const override { return group_->Health(); }
  TrafficTable traffic() const override { return group_->traffic(); }

 private:
  void Say(const char* operation, const char* name, absl::Span<const int64_t> bytes);

  ProcessGroup* const group_;
  Rendezvous* const rendezvous_;
  int64_t callback_ = 0;
  int64_t next_index_ = 0;
};

}  // namespace zero
