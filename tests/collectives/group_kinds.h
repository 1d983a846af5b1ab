// The implementations of ProcessGroup that the contract suite runs on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/process_group.h"
#include "device/device.h"
#include "device/scheduler.h"

namespace zero::test {

// All ranks of one group, in this process.
class GroupWorld {
 public:
  virtual ~GroupWorld() = default;  // after every stream that ran its collectives
  virtual int size() const = 0;
  virtual ProcessGroup* group(int rank) = 0;
  // What rank `rank` computes on; `hook` sees the operations of its streams where they have any.
  virtual std::unique_ptr<Device> MakeDevice(int rank, const OperationHook& hook) = 0;
};

struct GroupKind {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<GroupWorld>>(int size, absl::Duration deadline)>
      make;
  // Streams take operations of the host: tests may hold them back, look between two collectives,
  // and inject errors.
  bool host_streams = true;
  // Operations that one collective enqueues; with host_streams only.
  int operations = 0;
  // A call fails on all ranks or on none. Between processes a rank may have got all that it needs.
  bool all_or_nothing = true;
  // What each rank calls is compared. NCCL cannot: see CheckedGroup.
  bool compares_calls = true;
  // Of its deadlines; one that also bounds how long the group may take to start is longer.
  absl::Duration shortest = absl::Milliseconds(10);
};

// Another implementation joins by a row.
const std::vector<GroupKind>& GroupKinds();

const GroupKind& LocalKind();

// The test runs once for each kind (a Catch2 generator).
const GroupKind& EachKind();
// For each kind with compares_calls.
const GroupKind& EachComparingKind();
// For each kind with host_streams.
const GroupKind& EachHostKind();

// Fails the test if there is none.
std::unique_ptr<GroupWorld> MakeWorld(const GroupKind& kind, int size, absl::Duration deadline);

}  // namespace zero::test
