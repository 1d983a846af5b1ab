// The n-th call of a kind fails: what the loops over all failures are made of.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "collectives/process_group.h"
#include "device/host_device.h"

namespace zero::test {

enum class FaultKind {
  kCall,       // what the driving thread asks for: memory, streams, events, enqueued work
  kOperation,  // work of a stream, when it runs
  kCollective  // a collective of the group, when it is enqueued
};

// Shared by one rank's device and group. Idle until armed.
class FaultCounter {
 public:
  // The n-th call (0, 1, ...) of `kind` from now on fails with `code`.
  void Arm(FaultKind kind, int64_t n, absl::StatusCode code);
  void Disarm();
  bool fired() const;
  std::string what() const;  // the call that failed

  absl::Status Count(FaultKind kind, const std::string& what);

 private:
  mutable std::mutex mutex_;
  bool armed_ = false;
  FaultKind kind_ = FaultKind::kCall;
  int64_t left_ = 0;
  absl::StatusCode code_ = absl::StatusCode::kUnavailable;
  bool fired_ = false;
  std::string what_;
};

class FaultyDevice : public HostDevice {
 public:
  explicit FaultyDevice(FaultCounter* counter);
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(const std::string& name) override;
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override;

 protected:
  absl::StatusOr<void*> AllocateBytes(int64_t bytes) override;

 private:
  FaultCounter* const counter_;
  ThreadScheduler scheduler_;
};

class FaultyGroup : public ProcessGroup {
 public:
  FaultyGroup(ProcessGroup* group, FaultCounter* counter) : group_(group), counter_(counter) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  absl::Duration deadline() const override { return group_->deadline(); }
  absl::Status AllToAll(const Stream& stream, const char* name,
                        absl::Span<const AllToAllPiece> pieces) override;
  absl::Status AllGather(const Stream& stream, const char* name,
                         absl::Span<const AllGatherPiece> pieces) override;
  absl::Status Barrier(const Stream& stream, const char* name) override;
  void Abort(const absl::Status& reason) override { group_->Abort(reason); }
  absl::Status Health() const override { return group_->Health(); }
  TrafficTable traffic() const override { return group_->traffic(); }

 private:
  ProcessGroup* const group_;
  FaultCounter* const counter_;
};

}  // namespace zero::test
