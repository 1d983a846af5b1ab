// NCCL itself, with one rank: start, every call with itself, and an abort. Needs a GPU.
#include <chrono>
#include <vector>

#include "collectives/nccl_group.h"
#include "device/cuda_device.h"
#include "device/status.h"
#include "tests/catch.h"
#include "tests/collectives/local_channel.h"

namespace zero::test {
namespace {

constexpr int64_t kBytes = 1 << 20;

class OneRank {
 public:
  OneRank() : channels_(1) {
    absl::StatusOr<std::unique_ptr<CudaDevice>> made = CudaDevice::Create();
    REQUIRE_OK(made.status());
    device = *std::move(made);
    absl::StatusOr<std::unique_ptr<ProcessGroup>> joined =
        CreateNcclGroup(device.get(), channels_.channel(0), {absl::Seconds(30)});
    REQUIRE_OK(joined.status());
    group = *std::move(joined);
    absl::StatusOr<std::unique_ptr<Stream>> created = device->CreateStream("rank-0");
    REQUIRE_OK(created.status());
    stream = *std::move(created);
    for (Buffer* buffer : {&send, &receive}) {
      absl::StatusOr<Buffer> memory = device->Allocate(kBytes, MemoryCategory::kOther, "test");
      REQUIRE_OK(memory.status());
      *buffer = *std::move(memory);
    }
  }
  ~OneRank() { stream.reset(); }

  // Sends bytes of `value`, and returns what came.
  template <class Call>
  std::vector<uint8_t> Received(uint8_t value, const Call& call) {
    std::vector<uint8_t> bytes(kBytes);
    REQUIRE_OK(device->Fill(*stream, send.data(), value, kBytes));
    REQUIRE_OK(device->Fill(*stream, receive.data(), 0xCC, kBytes));
    REQUIRE_OK(call());
    REQUIRE_OK(device->Copy(*stream, bytes.data(), receive.data(), kBytes));
    REQUIRE_OK(stream->Synchronize());
    REQUIRE_OK(group->Health());
    return bytes;
  }

 private:
  LocalChannels channels_;

 public:
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<ProcessGroup> group;
  std::unique_ptr<Stream> stream;
  Buffer send, receive;
};

TEST_CASE("NCCL on a GPU: one rank starts and has sent itself the bytes of the self-test",
          "[collectives][nccl]") {
  OneRank one;
  CHECK(one.group->size() == 1);
  CHECK(one.group->rank() == 0);
  CHECK(one.group->has_native_reduction());
  CHECK_OK(one.group->Health());
}

TEST_CASE("NCCL on a GPU: one rank gets from itself what it sent by every call",
          "[collectives][nccl]") {
  OneRank one;
  const AllToAllPiece exchanged{one.send.data(), kBytes, one.receive.data(), kBytes};
  const AllGatherPiece gathered{one.send.data(), one.receive.data(), kBytes, kBytes};
  const ReduceScatterPiece reduced{one.send.data(), kBytes, one.receive.data(), kBytes / 4,
                                   DType::kF32};
  CHECK(one.Received(1, [&] {
    return one.group->AllToAll(*one.stream, "exchange", {&exchanged, 1});
  }) == std::vector<uint8_t>(kBytes, 1));
  CHECK(one.Received(2, [&] {
    return one.group->AllGather(*one.stream, "gather", {&gathered, 1});
  }) == std::vector<uint8_t>(kBytes, 2));
  CHECK(one.Received(3, [&] {
    return one.group->ReduceScatter(*one.stream, "reduce", {&reduced, 1});
  }) == std::vector<uint8_t>(kBytes, 3));
  CHECK_OK(one.group->Barrier(*one.stream, "meet"));
  CHECK_OK(one.stream->Synchronize());
  CHECK(one.group->traffic()["exchange"].calls == 1);
}

TEST_CASE("NCCL on a GPU: an abort refuses later calls with its reason and leaves the GPU usable",
          "[collectives][nccl]") {
  {
    OneRank one;
    one.group->Abort(absl::UnavailableError("the trainer gave up"));
    const absl::Status refused = one.group->Barrier(*one.stream, "later");
    INFO(refused.ToString());
    CHECK(!refused.ok());
    CHECK_THAT(std::string(refused.message()), ContainsSubstring("the trainer gave up"));
    CHECK(!one.group->Health().ok());
    CHECK_OK(one.stream->Synchronize());
  }
  OneRank again;
  CHECK_OK(again.group->Barrier(*again.stream, "meet"));
  CHECK_OK(again.stream->Synchronize());
}

}  // namespace
}  // namespace zero::test
