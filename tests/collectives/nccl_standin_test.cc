// That the stand-in catches what NCCL would answer with a hang or worse.
#include <thread>
#include <vector>

#include "device/cuda_context.h"
#include "device/cuda_device.h"
#include "device/cuda_stream.h"
#include "tests/catch.h"
#include "tests/standin/cudart.h"
#include "tests/standin/nccl_standin.h"

namespace zero::test {
namespace {

// Two communicators, driven by one thread.
class Pair {
 public:
  Pair() {
    standin::CudartOptions options;
    options.devices = 3;
    standin::Reset(options);
    standin::ResetNccl();
    api = LoadNccl().value();
    REQUIRE(api->get_unique_id(&id) == ncclSuccess);
    for (int r = 0; r < 2; ++r) {
      CudaDevice::Options options;
      options.id = r;
      absl::StatusOr<std::unique_ptr<CudaDevice>> device = CudaDevice::Create(options);
      REQUIRE_OK(device.status());
      devices.push_back(*std::move(device));
      absl::StatusOr<std::unique_ptr<Stream>> stream = devices[r]->CreateStream("s");
      REQUIRE_OK(stream.status());
      streams.push_back(*std::move(stream));
      absl::StatusOr<Buffer> buffer = devices[r]->Allocate(256, MemoryCategory::kOther, "test");
      REQUIRE_OK(buffer.status());
      memory.push_back(*std::move(buffer));
      REQUIRE(Init(r, 2, r, &communicators[r]) == ncclInProgress);
    }
    for (int r = 0; r < 2; ++r) Settle(r);
  }
  ~Pair() {
    for (int r = 0; r < 2; ++r) {
      if (!ended[r]) api->comm_abort(communicators[r]);
    }
    for (const auto& stream : streams) stream->Synchronize().IgnoreError();
    streams.clear();
    standin::ResetNccl();
  }

  ncclResult_t Init(int gpu, int size, int rank, ncclComm_t* communicator) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const CurrentCudaDevice current(gpu);
    return api->comm_init_rank_config(communicator, size, id, rank, &config);
  }
  // Polls until nothing is in progress.
  ncclResult_t Settle(int r) {
    ncclResult_t state = ncclInProgress;
    for (int i = 0; i < 100 && state == ncclInProgress; ++i) {
      if (const ncclResult_t asked = api->comm_get_async_error(communicators[r], &state)) {
        return asked;
      }
    }
    return state;
  }
  void SettleBoth() {
    for (int r = 0; r < 2; ++r) Settle(r);
  }
  cudaStream_t stream(int r) const { return NativeStream(*streams[r]); }
  ncclResult_t Gather(int r, size_t count, ncclDataType_t type = ncclInt8) {
    return api->all_gather(memory[r].data(), memory[r].bytes_at(128), count, type, communicators[r],
                           stream(r));
  }
  // Calls of both ranks meet in the streams.
  void MeetOnce() {
    for (int r = 0; r < 2; ++r) CHECK(Gather(r, 8) == ncclInProgress);
    SettleBoth();
    for (int r = 0; r < 2; ++r) CHECK_OK(streams[r]->Synchronize());
  }
  bool Saw(const std::string& text) const {
    for (const std::string& violation : standin::NcclViolations()) {
      if (violation.find(text) != std::string::npos) return true;
    }
    return false;
  }

  const NcclApi* api = nullptr;
  ncclUniqueId id;
  std::vector<std::unique_ptr<CudaDevice>> devices;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<Buffer> memory;
  ncclComm_t communicators[2] = {};
  bool ended[2] = {false, false};
};

TEST_CASE("NCCL stand-in: what is right is no violation but for communicators that stay",
          "[collectives][nccl][thread]") {
  Pair pair;
  pair.MeetOnce();
  CHECK(pair.Saw("rank 0 was never ended"));
  for (int r = 0; r < 2; ++r)
    CHECK(pair.api->comm_finalize(pair.communicators[r]) == ncclInProgress);
  pair.SettleBoth();
  for (int r = 0; r < 2; ++r) {
    CHECK(pair.api->comm_destroy(pair.communicators[r]) == ncclSuccess);
    pair.ended[r] = true;
  }
  CHECK(standin::NcclViolations() == std::vector<std::string>());
}

TEST_CASE("NCCL stand-in: another count or type or operation is a violation and ends both ranks",
          "[collectives][nccl][thread]") {
  {
    Pair pair;
    pair.Gather(0, 8);
    pair.Gather(1, 9);
    pair.SettleBoth();
    while (pair.Settle(0) == ncclSuccess || pair.Settle(1) == ncclSuccess)
      std::this_thread::yield();
    CHECK(pair.Saw("all-gather of 8 elements of type 0"));
    CHECK(pair.Saw("all-gather of 9 elements of type 0"));
  }
  {
    Pair pair;
    pair.Gather(0, 4, ncclInt8);
    pair.Gather(1, 4, ncclFloat32);
    pair.SettleBoth();
    while (!pair.Saw("of type 7")) std::this_thread::yield();
  }
  {
    Pair pair;
    pair.Gather(0, 8);
    CHECK(pair.api->reduce_scatter(pair.memory[1].data(), pair.memory[1].bytes_at(128), 2,
                                   ncclFloat32, ncclSum, pair.communicators[1],
                                   pair.stream(1)) == ncclInProgress);
    pair.SettleBoth();
    while (!pair.Saw("reduce-scatter")) std::this_thread::yield();
  }
}

TEST_CASE("NCCL stand-in: a send that meets another size or nobody is a violation",
          "[collectives][nccl][thread]") {
  Pair pair;
  pair.api->group_start();
  CHECK(pair.api->send(pair.memory[0].data(), 8, ncclInt8, 1, pair.communicators[0],
                       pair.stream(0)) == ncclSuccess);
  CHECK(pair.api->group_end() == ncclInProgress);
  pair.api->group_start();
  CHECK(pair.api->recv(pair.memory[1].data(), 16, ncclInt8, 0, pair.communicators[1],
                       pair.stream(1)) == ncclSuccess);
  CHECK(pair.api->group_end() == ncclInProgress);
  pair.SettleBoth();
  while (!pair.Saw("send to rank 1 of 8 elements")) std::this_thread::yield();
  CHECK(pair.Saw("receive from rank 0 of 16 elements"));
}

TEST_CASE("NCCL stand-in: calls outside groups or of no rank or nothing are refused",
          "[collectives][nccl][thread]") {
  Pair pair;
  CHECK(pair.api->send(pair.memory[0].data(), 8, ncclInt8, 1, pair.communicators[0],
                       pair.stream(0)) == ncclInvalidUsage);
  CHECK(pair.Saw("outside a group"));
  CHECK(pair.api->group_end() == ncclInvalidUsage);
  CHECK(pair.Saw("ncclGroupEnd without ncclGroupStart"));
  CHECK(pair.Gather(0, 0) == ncclInvalidUsage);
  CHECK(pair.Saw("no elements"));
  CHECK(pair.Gather(0, 1, ncclFloat64) == ncclInvalidUsage);
  CHECK(pair.Saw("a type that is not used here"));
  pair.api->group_start();
  CHECK(pair.api->recv(pair.memory[0].data(), 8, ncclInt8, 2, pair.communicators[0],
                       pair.stream(0)) == ncclInvalidUsage);
  CHECK(pair.Saw("no such rank"));
  CHECK(pair.api->group_end() == ncclInvalidUsage);
}

TEST_CASE("NCCL stand-in: a call before NCCL is done with the last one is refused",
          "[collectives][nccl][thread]") {
  Pair pair;
  CHECK(pair.Gather(0, 8) == ncclInProgress);
  CHECK(pair.Gather(0, 8) == ncclInvalidUsage);
  CHECK(pair.Saw("not done with the last call"));
}

TEST_CASE("NCCL stand-in: one group on two streams is refused", "[collectives][nccl][thread]") {
  Pair pair;
  const auto other = pair.devices[0]->CreateStream("other").value();
  pair.api->group_start();
  CHECK(pair.Gather(0, 8) == ncclSuccess);
  CHECK(pair.api->all_gather(pair.memory[0].data(), pair.memory[0].bytes_at(128), 8, ncclInt8,
                             pair.communicators[0], NativeStream(*other)) == ncclSuccess);
  CHECK(pair.api->group_end() == ncclInvalidUsage);
  CHECK(pair.Saw("different streams"));
}

TEST_CASE("NCCL stand-in: memory that is null or freed or too short is a violation",
          "[collectives][nccl][thread]") {
  const auto refused = [](const auto& change) {
    Pair pair;
    change(pair);
    for (int r = 0; r < 2; ++r) pair.Gather(r, 8);
    pair.SettleBoth();
    CHECK(pair.Settle(0) == ncclInvalidArgument);
    CHECK(pair.Saw("all-gather of 8 elements of type 0 on rank 0"));
  };
  // Too small for what two ranks send.
  refused([](Pair& pair) {
    pair.memory[0] = pair.devices[0]->Allocate(128 + 8, MemoryCategory::kOther, "test").value();
  });
  refused([](Pair& pair) { pair.memory[0] = Buffer(); });
  // Of the other GPU.
  refused([](Pair& pair) {
    pair.memory[0] = pair.devices[1]->Allocate(256, MemoryCategory::kOther, "test").value();
  });
}

TEST_CASE("NCCL stand-in: a stream of another GPU is a violation", "[collectives][nccl][thread]") {
  Pair pair;
  CHECK(pair.api->all_gather(pair.memory[0].data(), pair.memory[0].bytes_at(128), 8, ncclInt8,
                             pair.communicators[0], pair.stream(1)) == ncclInProgress);
  pair.Gather(1, 8);
  CHECK(pair.Settle(0) == ncclInvalidArgument);
  CHECK(pair.Saw("uses a stream that is none of that GPU"));
}

TEST_CASE("NCCL stand-in: use after the end and the end before its time are violations",
          "[collectives][nccl][thread]") {
  Pair pair;
  CHECK(pair.api->comm_destroy(pair.communicators[0]) == ncclInvalidUsage);
  CHECK(pair.Saw("is not finalized"));
  CHECK(pair.api->comm_abort(pair.communicators[0]) == ncclSuccess);
  pair.ended[0] = true;
  CHECK(pair.Gather(0, 8) == ncclInvalidArgument);
  CHECK(pair.Saw("used after its end"));
  ncclResult_t state;
  CHECK(pair.api->comm_get_async_error(nullptr, &state) == ncclInvalidArgument);
  CHECK(pair.api->comm_finalize(pair.communicators[1]) == ncclInProgress);
  CHECK(pair.api->comm_finalize(pair.communicators[1]) == ncclInvalidUsage);
}

TEST_CASE("NCCL stand-in: a rank twice or another size or a blocking communicator is refused",
          "[collectives][nccl][thread]") {
  Pair pair;
  ncclComm_t communicator = nullptr;
  CHECK(pair.Init(2, 2, 1, &communicator) == ncclInvalidArgument);
  CHECK(pair.Init(2, 3, 2, &communicator) == ncclInvalidArgument);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  CHECK(pair.api->comm_init_rank_config(&communicator, 2, pair.id, 0, &config) == ncclInvalidUsage);
  config.blocking = 0;
  CHECK(pair.api->comm_init_rank_config(&communicator, 2, ncclUniqueId{}, 0, &config) ==
        ncclInvalidUsage);
  CHECK(communicator == nullptr);
}

TEST_CASE("NCCL stand-in: two threads in one communicator are caught",
          "[collectives][nccl][thread]") {
  Pair pair;
  // One thread between two calls of its group.
  pair.api->group_start();
  CHECK(pair.Gather(0, 8) == ncclSuccess);
  std::thread other([&] {
    ncclResult_t state;
    CHECK(pair.api->comm_get_async_error(pair.communicators[0], &state) == ncclInvalidUsage);
  });
  other.join();
  CHECK(pair.api->group_end() == ncclInProgress);
  CHECK(pair.Saw("used by two threads at once"));
}

TEST_CASE("NCCL stand-in: a call whose peer does not come stays until it is aborted and is spoilt",
          "[collectives][nccl][thread]") {
  Pair pair;
  pair.MeetOnce();
  absl::StatusOr<Buffer> seen = pair.devices[0]->AllocateHost(128, MemoryCategory::kOther, "seen");
  REQUIRE_OK(seen.status());
  CHECK_OK(pair.devices[0]->Fill(*pair.streams[0], pair.memory[0].data(), 7, 256));
  CHECK(pair.Gather(0, 64) == ncclInProgress);
  CHECK(pair.Settle(0) == ncclSuccess);
  CHECK_OK(
      pair.devices[0]->Copy(*pair.streams[0], seen->data(), pair.memory[0].bytes_at(128), 128));
  const std::unique_ptr<Event> after = pair.devices[0]->CreateEvent().value();
  CHECK_OK(after->Record(*pair.streams[0]));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(!after->Reached());
  CHECK(pair.api->comm_abort(pair.communicators[0]) == ncclSuccess);
  pair.ended[0] = true;
  CHECK_OK(pair.streams[0]->Synchronize());
  CHECK(static_cast<uint8_t>(*seen->bytes_at(0)) == 0xFF);
  CHECK(*seen->bytes_at(127) == 7);
}

}  // namespace
}  // namespace zero::test
