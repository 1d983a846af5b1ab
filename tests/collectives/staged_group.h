// A group whose ranks cannot read each other's memory: reductions exchange what they add.
#pragma once

#include "collectives/process_group.h"

namespace zero::test {

// Passes on what every back end has, and no reduction.
class StagedGroup : public ProcessGroup {
 public:
  explicit StagedGroup(ProcessGroup* group) : group_(group) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  absl::Duration deadline() const override { return group_->deadline(); }
  absl::Status AllToAll(const Stream& stream, const char* name,
                        absl::Span<const AllToAllPiece> pieces) override {
    return group_->AllToAll(stream, name, pieces);
  }
  absl::Status AllGather(const Stream& stream, const char* name,
                         absl::Span<const AllGatherPiece> pieces) override {
    return group_->AllGather(stream, name, pieces);
  }
  absl::Status Barrier(const Stream& stream, const char* name) override {
    return group_->Barrier(stream, name);
  }
  void Abort(const absl::Status& reason) override { group_->Abort(reason); }
  absl::Status Health() const override { return group_->Health(); }
  TrafficTable traffic() const override { return group_->traffic(); }

 private:
  ProcessGroup* const group_;
};

}  // namespace zero::test
