// Ranks as threads of one process.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/process_group.h"

namespace zero {

class SeededScheduler;

// The ranks of one group; every rank's ProcessGroup lives in it. On host streams, or on the streams
// of GPUs, which ranks may share: then each call blocks the thread that makes it until all ranks
// have called, and an error is returned by the call, on every rank, rather than found later. Not on
// both in one world.
class LocalWorld {
 public:
  explicit LocalWorld(int size, absl::Duration deadline = absl::Minutes(10));
  // After every stream that ran its collectives; before the devices of those that are GPUs'.
  ~LocalWorld();
  LocalWorld(const LocalWorld&) = delete;
  LocalWorld& operator=(const LocalWorld&) = delete;

  int size() const;
  ProcessGroup* group(int rank);

 private:
  struct Shared;
  class Group;
  std::shared_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Group>> groups_;
};

// Runs body(group of the rank) on one thread per rank and joins them all. A rank that returns an
// error, or throws (kInternal), aborts the group, so that the others end too: what they have
// enqueued fails, and what waits for it. Returns the error that came first, with the rank in its
// message; a kAborted, the echo of an error elsewhere, only if there is no other.
// With a scheduler, the ranks are its drivers; their devices share it.
absl::Status RunRanks(LocalWorld& world,
                      const std::function<absl::Status(ProcessGroup* group)>& body,
                      SeededScheduler* scheduler = nullptr);

}  // namespace zero
