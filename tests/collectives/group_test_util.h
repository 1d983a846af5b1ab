// Ranks for tests: each a thread with a device and a stream of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "collectives/local_group.h"
#include "device/host_device.h"
#include "tests/catch.h"

namespace zero::test {

struct Rank {
  int index = 0;
  ProcessGroup* group = nullptr;
  HostDevice* device = nullptr;
  Stream* stream = nullptr;  // "rank-<index>"
};

// Calls body on a thread per rank; what each returned. Unlike RunRanks it aborts nothing. `body`
// synchronises the stream before memory that it uses goes.
std::vector<absl::Status> OnEachRank(LocalWorld& world,
                                     const std::function<absl::Status(const Rank&)>& body,
                                     const OperationHook& hook = nullptr);

// The status of a rank that must be OK on all ranks; "" or the first that is not.
std::string FirstError(const std::vector<absl::Status>& statuses);

// A byte that depends on all three.
uint8_t ByteOf(int rank, int64_t piece, int64_t i);

std::unique_ptr<Stream> NewStream(Device& device, const std::string& name);

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

// Seconds since some fixed point.
double Seconds();
void Sleep(int milliseconds);

}  // namespace zero::test
