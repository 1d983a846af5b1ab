#include <atomic>
#include <memory>
#include <stdexcept>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/local_group.h"
#include "device/host_device.h"
#include "device/status.h"
#include "tests/collectives/group_test_util.h"

namespace zero::test {
namespace {

enum class Fault { kNone, kReturn, kThrow, kThrowInt, kStream };

// A trainer in miniature: memory, a stream, collectives; rank 1 fails after three rounds.
// Everything that it made is gone when it returns, as in a real one.
absl::Status Work(ProcessGroup* group, HostDevice* device, Fault fault) {
  constexpr int64_t kBytes = 10000;
  ZERO_ASSIGN_OR_RETURN(Buffer memory,
                        device->Allocate(group->size() * kBytes, MemoryCategory::kWeights, "w"));
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device->CreateStream("work"));
  ZERO_RETURN_IF_ERROR(device->Fill(*stream, memory.data(), 1, memory.bytes()));
  for (int round = 0; round < 6; ++round) {
    const AllGatherPiece piece{memory.bytes_at(group->rank() * kBytes), memory.data(), kBytes,
                               kBytes};
    ZERO_RETURN_IF_ERROR(group->AllGather(*stream, "round", {&piece, 1}));
    if (group->rank() != 1 || round != 3) continue;
    if (fault == Fault::kReturn) return absl::NotFoundError("no such sample");
    if (fault == Fault::kThrow) throw std::runtime_error("out of cheese");
    if (fault == Fault::kThrowInt) throw 42;
    if (fault == Fault::kStream) {
      ZERO_RETURN_IF_ERROR(
          stream->Enqueue("explode", [] { return absl::DataLossError("exploded"); }));
    }
  }
  return stream->Synchronize();
}

absl::Status RunWork(int ranks, Fault fault, int64_t* bytes_left) {
  LocalWorld world(ranks, absl::Minutes(10));
  std::vector<std::unique_ptr<HostDevice>> devices;
  for (int r = 0; r < ranks; ++r) devices.push_back(std::make_unique<HostDevice>());
  const absl::Status status = RunRanks(
      world, [&](ProcessGroup* group) { return Work(group, devices[group->rank()].get(), fault); });
  *bytes_left = 0;
  for (const auto& device : devices) {
    for (const MemoryUse& use : device->memory()) *bytes_left += use.current;
  }
  return status;
}

TEST_CASE("RunRanks: every rank runs once with its own group, and OK is the sum of OKs",
          "[collectives][thread]") {
  for (int ranks : {1, 2, 3, 8}) {
    CAPTURE(ranks);
    LocalWorld world(ranks, absl::Seconds(60));
    std::vector<int> runs(ranks, 0);
    CHECK_OK(RunRanks(world, [&](ProcessGroup* group) {
      ++runs[group->rank()];
      return absl::OkStatus();
    }));
    CHECK(runs == std::vector<int>(ranks, 1));
    int64_t bytes_left = -1;
    CHECK_OK(RunWork(ranks, Fault::kNone, &bytes_left));
    CHECK(bytes_left == 0);
  }
}

TEST_CASE("RunRanks: one rank that returns an error, or throws, ends all of them with that error",
          "[collectives][thread]") {
  struct Case {
    Fault fault;
    absl::StatusCode code;
    const char* text;
  };
  const Case cases[] = {
      {Fault::kReturn, absl::StatusCode::kNotFound, "rank 1: no such sample"},
      {Fault::kThrow, absl::StatusCode::kInternal, "rank 1: threw: out of cheese"},
      {Fault::kThrowInt, absl::StatusCode::kInternal, "rank 1: threw something"},
      {Fault::kStream, absl::StatusCode::kDataLoss, "exploded"},
  };
  for (int ranks : {2, 3, 4}) {
    for (const Case& c : cases) {
      CAPTURE(ranks, c.text);
      int64_t bytes_left = -1;
      const double start = Seconds();
      const absl::Status status = RunWork(ranks, c.fault, &bytes_left);
      INFO(status.ToString());
      CHECK(Seconds() - start < 20);
      CHECK(status.code() == c.code);
      CHECK_THAT(std::string(status.message()), ContainsSubstring(c.text));
      CHECK_THAT(std::string(status.message()), ContainsSubstring("rank 1"));
      CHECK(bytes_left == 0);
    }
  }
}

TEST_CASE("RunRanks: a rank that throws while the others wait for it ends them at once",
          "[collectives][thread]") {
  LocalWorld world(4, absl::Minutes(10));
  std::atomic<int> told{0};
  const double start = Seconds();
  const absl::Status status = RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
    if (group->rank() == 3) {
      Sleep(20);
      throw std::out_of_range("index 7");
    }
    HostDevice device;
    ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.CreateStream("s"));
    ZERO_RETURN_IF_ERROR(group->Barrier(*stream, "never"));
    const absl::Status waited = stream->Synchronize();
    if (std::string(waited.message()).find("index 7") != std::string::npos) ++told;
    return waited;
  });
  CHECK(Seconds() - start < 20);
  CHECK(absl::IsInternal(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("rank 3: threw: index 7"));
  CHECK(told == 3);
}

TEST_CASE("RunRanks: an error of one rank is preferred to the echoes of it on others",
          "[collectives][thread]") {
  LocalWorld world(3, absl::Minutes(10));
  std::atomic<int> aborted{0};
  const absl::Status status = RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
    if (group->rank() == 0) {
      // The group dies, the others return, and only then does the reason come.
      group->Abort(absl::UnavailableError("going down"));
      while (aborted < 2) Sleep(1);
      return absl::UnavailableError("the reason");
    }
    HostDevice device;
    ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.CreateStream("s"));
    while (group->Health().ok()) Sleep(1);
    const absl::Status refused = group->Barrier(*stream, "after");
    ++aborted;
    return refused;
  });
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message() == "rank 0: the reason");
}

}  // namespace
}  // namespace zero::test
