// Ranks for tests: each a thread with a device and a stream of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/process_group.h"
#include "device/device.h"
#include "tests/catch.h"
#include "tests/collectives/group_kinds.h"
#include "tests/collectives/rendezvous_test_util.h"

namespace zero::test {

struct Rank {
  int index = 0;
  ProcessGroup* group = nullptr;
  Device* device = nullptr;
  Stream* stream = nullptr;  // "rank-<index>"
};

// Calls body on a thread per rank; what each returned. Unlike RunRanks it aborts nothing. `body`
// synchronises the stream before memory that it uses goes.
std::vector<absl::Status> OnEachRank(GroupWorld& world,
                                     const std::function<absl::Status(const Rank&)>& body,
                                     const OperationHook& hook = nullptr);

// A byte that depends on all three.
uint8_t ByteOf(int rank, int64_t piece, int64_t i);

// Memory of a rank's device, written and read by whoever drives it. It may go at any time.
class DeviceBytes {
 public:
  static absl::StatusOr<DeviceBytes> Create(const Rank& rank, int64_t bytes);
  // Enqueues a copy of `bytes`, which must live until it has run, to the start.
  absl::Status Put(const std::vector<uint8_t>& bytes);
  // Enqueues a copy of all of it; `bytes` must live until it has run.
  absl::Status Get(std::vector<uint8_t>& bytes) const;
  uint8_t* data() const { return buffer_.as<uint8_t>(); }

 private:
  DeviceBytes(const Rank& rank, Buffer buffer) : rank_(&rank), buffer_(std::move(buffer)) {}
  const Rank* rank_;
  Buffer buffer_;
};

std::unique_ptr<Stream> NewStream(Device& device, const std::string& name);

// What came of a call that was enqueued and has run: where a failed collective lets its stream go
// on, only the group knows.
absl::Status Outcome(const Rank& rank, const absl::Status& enqueued, const absl::Status& ran);

// One all-gather of `bytes` per rank, and what came of it when it has run.
absl::Status GatherBytes(const Rank& rank, const char* name, int64_t bytes);

// Holds the streams of all ranks back until every rank has enqueued what it wants to, so that no
// rank is refused because another one failed before.
class LineUp {
 public:
  explicit LineUp(int ranks) : enqueued_(ranks) {}
  absl::Status Hold(const Stream& stream) {
    return stream.Enqueue("line up", [this] {
      enqueued_.wait();
      return absl::OkStatus();
    });
  }
  void Enqueued() { enqueued_.count_down(); }

 private:
  std::latch enqueued_;
};

}  // namespace zero::test
