// Ranks over NCCL for tests: each a thread with a GPU, a group and a stream, all on the stand-ins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/nccl_group.h"
#include "device/cuda_device.h"
#include "tests/catch.h"
#include "tests/collectives/local_channel.h"
#include "tests/standin/nccl_standin.h"

namespace zero::test {

struct NcclTestRank {
  int index = 0;
  ProcessGroup* group = nullptr;
  CudaDevice* device = nullptr;
  Stream* stream = nullptr;
};

struct NcclWorld {
  explicit NcclWorld(int ranks, absl::Duration deadline = absl::Seconds(60))
      : size(ranks), channels(ranks, deadline), options{deadline} {
    for (int r = 0; r < ranks; ++r) gpus.push_back(r);
  }
  const int size;
  LocalChannels channels;
  NcclOptions options;
  std::vector<int> gpus;  // of each rank
};

// Makes the group on a thread per rank, calls `body`, synchronises the stream, ends the group; what
// each rank returned. A body that fails aborts the group, as a trainer would.
std::vector<absl::Status> OnEachNcclRank(
    NcclWorld& world, const std::function<absl::Status(const NcclTestRank&)>& body);

// The stand-ins of CUDA and NCCL in their first state; afterwards without violations, and nothing
// left of what was made.
class NcclStandin {
 public:
  explicit NcclStandin(int gpus = 4);
  ~NcclStandin();
};

// Bytes on a device.
absl::StatusOr<Buffer> ToDevice(const NcclTestRank& rank, const std::vector<uint8_t>& bytes);
// Waits for the stream.
absl::StatusOr<std::vector<uint8_t>> FromDevice(const NcclTestRank& rank, const Buffer& buffer);

// One all-gather of `bytes` per rank, checked.
absl::Status GatherOnNccl(const NcclTestRank& rank, const char* name, int64_t bytes);

// "" or the first status that is not OK, with its rank.
std::string FirstNcclError(const std::vector<absl::Status>& statuses);

}  // namespace zero::test
