// How a group over NCCL dies: which error each rank gets, how soon, and what the streams see.
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/checked_group.h"
#include "device/cuda_stream.h"
#include "device/status.h"
#include "tests/collectives/nccl_test_util.h"
#include "tests/collectives/rendezvous_test_util.h"
#include "tests/standin/cudart.h"

namespace zero::test {
namespace {

constexpr double kSoon = 20;  // seconds; far below deadlines that must not be waited for

bool Contains(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

// Every kind of call.
absl::Status UseAll(const NcclTestRank& rank) {
  const int n = rank.group->size();
  ZERO_ASSIGN_OR_RETURN(const Buffer send,
                        ToDevice(rank, std::vector<uint8_t>(static_cast<size_t>(n * 64), 1)));
  ZERO_ASSIGN_OR_RETURN(const Buffer receive,
                        ToDevice(rank, std::vector<uint8_t>(static_cast<size_t>(n * 64), 2)));
  const auto use = [&]() -> absl::Status {
    const AllToAllPiece exchanged{send.data(), 64, receive.data(), 64};
    ZERO_RETURN_IF_ERROR(rank.group->AllToAll(*rank.stream, "exchange", {&exchanged, 1}));
    const AllGatherPiece gathered{send.data(), receive.data(), 64, 64};
    ZERO_RETURN_IF_ERROR(rank.group->AllGather(*rank.stream, "gather", {&gathered, 1}));
    const ReduceScatterPiece whole{send.data(), 64, receive.data(), 16, DType::kF32};
    const ReduceScatterPiece columns{send.data(), 64, receive.data(), 8, DType::kF32};
    ZERO_RETURN_IF_ERROR(rank.group->ReduceScatter(*rank.stream, "whole", {&whole, 1}));
    ZERO_RETURN_IF_ERROR(rank.group->ReduceScatter(*rank.stream, "columns", {&columns, 1}));
    return rank.group->Barrier(*rank.stream, "meet");
  };
  absl::Status status = use();
  if (!status.ok()) rank.group->Abort(status);
  const absl::Status ran = rank.stream->Synchronize();
  if (status.ok()) status = rank.group->Health();
  return status.ok() ? ran : status;
}

TEST_CASE("NCCL failure: any function failing at any call ends all ranks with its name and a rank",
          "[collectives][nccl][thread]") {
  for (const std::string& function : standin::NcclFunctions()) {
    int failures = 0;
    for (int n = 1; n < 200; n += n < 12 ? 1 : 7) {
      CAPTURE(function, n);
      const NcclStandin standin;
      standin::SetNcclPolls(1);
      standin::FailNccl(function, n, ncclSystemError);
      NcclWorld world(2);
      const double start = Seconds();
      const std::vector<absl::Status> statuses = OnEachNcclRank(world, UseAll);
      CHECK(Seconds() - start < kSoon);
      if (!standin::NcclHasFailed()) {
        CHECK(FirstNcclError(statuses) == "");
        break;
      }
      ++failures;
      const bool at_the_end = function == "ncclCommFinalize" || function == "ncclCommDestroy" ||
                              function == "ncclCommAbort" || function == "ncclCommGetAsyncError";
      for (const absl::Status& status : statuses) {
        INFO(status.ToString());
        if (status.ok() && at_the_end) continue;  // nothing left that could fail
        CHECK(!status.ok());
        CHECK(Contains(status, function));
        CHECK(Contains(status, "rank "));
      }
    }
    // Nothing is aborted unless something fails.
    CHECK((failures > 0 || function == "ncclCommAbort"));
  }
}

TEST_CASE("NCCL failure: one that comes while the ranks wait ends them with NCCL's text",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(3);
  const double start = Seconds();
  std::atomic<int> waiting{0};
  const std::vector<absl::Status> statuses =
      OnEachNcclRank(world, [&](const NcclTestRank& rank) -> absl::Status {
        if (rank.index == 1) {
          while (waiting < 2) Sleep(1);
          Sleep(20);
          standin::SetNcclAsyncError(1, ncclRemoteError);
          while (rank.group->Health().ok()) Sleep(1);
          return rank.group->Health();
        }
        const absl::Status called = rank.group->Barrier(*rank.stream, "wait");
        ++waiting;
        rank.stream->Synchronize().IgnoreError();
        return called.ok() ? rank.group->Health() : called;
      });
  CHECK(Seconds() - start < kSoon);
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    CHECK(absl::IsAborted(status));
    CHECK(Contains(status, "rank 1"));
    CHECK(Contains(status, "remote process exited"));
  }
}

// Waits in a barrier that rank 0 does not call; what the streams saw.
struct Seen {
  std::atomic<int> flag{-1};  // when the stream went on
};

std::vector<absl::Status> LeaveOneOut(NcclWorld& world, std::vector<Seen>& seen,
                                      const std::function<void(const NcclTestRank&)>& rank_0) {
  return OnEachNcclRank(world, [&](const NcclTestRank& rank) -> absl::Status {
    // All connections are there.
    ZERO_RETURN_IF_ERROR(GatherOnNccl(rank, "before", 16));
    if (rank.index == 0) {
      rank_0(rank);
      return rank.group->Health();
    }
    const absl::Status called = rank.group->Barrier(*rank.stream, "left out");
    Operation look;
    const int32_t* const flag = rank.group->failure_flag();
    look.run = [&seen, flag, index = rank.index] {
      seen[index].flag = __atomic_load_n(flag, __ATOMIC_ACQUIRE);
      return absl::OkStatus();
    };
    standin::EnqueueOperation(NativeStream(*rank.stream), std::move(look));
    rank.stream->Synchronize().IgnoreError();
    return called.ok() ? rank.group->Health() : called;
  });
}

TEST_CASE(
    "NCCL deadline: ranks that wait end with the call and the flag is set before streams go on",
    "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(3, absl::Milliseconds(400));
  std::vector<Seen> seen(3);
  const double start = Seconds();
  const std::vector<absl::Status> statuses = LeaveOneOut(world, seen, [](const NcclTestRank& rank) {
    while (rank.group->Health().ok()) Sleep(1);
  });
  CHECK(Seconds() - start >= 0.4);
  CHECK(Seconds() - start < kSoon);
  for (int r = 0; r < 3; ++r) {
    INFO(statuses[r].ToString());
    CHECK(absl::IsDeadlineExceeded(statuses[r]));
    CHECK(Contains(statuses[r], "barrier 'left out': rank "));
    CHECK(
        Contains(statuses[r], " waited 400ms for rank 0: rank 0 last called all-gather 'before'"));
    if (r > 0) CHECK(seen[r].flag == 1);
  }
}

TEST_CASE("NCCL deadline: a rank that does not answer either is named and waited for shortly",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(3, absl::Milliseconds(400));
  std::vector<Seen> seen(3);
  const double start = Seconds();
  const std::vector<absl::Status> statuses =
      LeaveOneOut(world, seen, [&](const NcclTestRank& rank) {
        world.channels.Mute(0);
        while (rank.group->Health().ok()) Sleep(1);
      });
  CHECK(Seconds() - start < kSoon);
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    CHECK(absl::IsDeadlineExceeded(status));
    CHECK(Contains(status, " waited 400ms for rank 0: rank 0 does not answer"));
  }
}

TEST_CASE("NCCL deadline: a rank whose stream does not come to the call is named",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(2, absl::Milliseconds(400));
  const std::vector<absl::Status> statuses =
      OnEachNcclRank(world, [&](const NcclTestRank& rank) -> absl::Status {
        ZERO_RETURN_IF_ERROR(GatherOnNccl(rank, "before", 16));
        if (rank.index == 1) {
          Operation compute;
          compute.run = [&rank] {
            while (rank.group->Health().ok()) Sleep(1);
            return absl::OkStatus();
          };
          standin::EnqueueOperation(NativeStream(*rank.stream), std::move(compute));
        }
        ZERO_RETURN_IF_ERROR(rank.group->Barrier(*rank.stream, "meet"));
        rank.stream->Synchronize().IgnoreError();
        return rank.group->Health();
      });
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    CHECK(absl::IsDeadlineExceeded(status));
    CHECK(Contains(status, "barrier 'meet': rank 0 waited 400ms for rank 1: rank 1 has called it"));
  }
}

TEST_CASE("NCCL deadline: ranks that wait on the host name the one that did not call",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(2, absl::Milliseconds(400));
  std::barrier connected(2);
  const std::vector<absl::Status> statuses =
      OnEachNcclRank(world, [&](const NcclTestRank& rank) -> absl::Status {
        connected.arrive_and_wait();
        if (rank.index == 0) {
          standin::SetNcclPolls(1 << 30);  // as at first use of a connection
          const absl::Status called = rank.group->Barrier(*rank.stream, "alone");
          standin::SetNcclPolls(2);
          return called;
        }
        while (rank.group->Health().ok()) Sleep(1);
        return rank.group->Health();
      });
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    CHECK(absl::IsDeadlineExceeded(status));
    CHECK(Contains(status, "barrier 'alone': rank 0 waited 400ms for rank 1: rank 1 last called"));
  }
}

TEST_CASE("NCCL end: a rank that does not end its group is named", "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(2, absl::Milliseconds(400));
  const std::vector<absl::Status> statuses =
      OnEachNcclRank(world, [&](const NcclTestRank& rank) -> absl::Status {
        ZERO_RETURN_IF_ERROR(GatherOnNccl(rank, "before", 16));
        if (rank.index == 0) return absl::OkStatus();
        (void)Soon([&] { return !rank.group->Health().ok(); });
        return rank.group->Health();
      });
  INFO(statuses[1].ToString());
  CHECK(absl::IsDeadlineExceeded(statuses[1]));
  CHECK(Contains(statuses[1], "end of NCCL: rank 0 waited 400ms for rank 1: rank 1 last called"));
}

TEST_CASE("NCCL deadline: its clock starts when the call is at the head of its stream",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(2, absl::Milliseconds(1000));
  CHECK(FirstNcclError(OnEachNcclRank(world, [](const NcclTestRank& rank) -> absl::Status {
          ZERO_RETURN_IF_ERROR(GatherOnNccl(rank, "connect", 16));
          for (int i = 0; i < 4; ++i) {
            Operation compute;
            compute.run = [] {
              Sleep(400);
              return absl::OkStatus();
            };
            standin::EnqueueOperation(NativeStream(*rank.stream), std::move(compute));
            ZERO_RETURN_IF_ERROR(rank.group->Barrier(*rank.stream, "meet"));
          }
          rank.stream->Synchronize().IgnoreError();
          return rank.group->Health();
        })) == "");
}

TEST_CASE("NCCL death: ranks that wait for a rank that ended get that as reason at once",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(3);
  std::vector<Seen> seen(3);
  const double start = Seconds();
  const std::vector<absl::Status> statuses =
      LeaveOneOut(world, seen, [&](const NcclTestRank& rank) {
        Sleep(30);
        world.channels.Die(0);
        while (rank.group->Health().ok()) Sleep(1);
      });
  CHECK(Seconds() - start < kSoon);
  for (int r : {1, 2}) {
    INFO(statuses[r].ToString());
    CHECK(absl::IsAborted(statuses[r]));
    CHECK(Contains(statuses[r], "rank 0 has ended"));
    CHECK(Contains(statuses[r], "barrier 'left out'"));
    CHECK(seen[r].flag == 1);
  }
}

TEST_CASE("NCCL abort: the first reason stays and later calls are kAborted with it",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(2);
  std::vector<absl::Status> later(2);
  const std::vector<absl::Status> statuses =
      OnEachNcclRank(world, [&](const NcclTestRank& rank) -> absl::Status {
        ZERO_RETURN_IF_ERROR(GatherOnNccl(rank, "before", 16));
        if (rank.index == 0) {
          std::thread other(
              [&] { rank.group->Abort(absl::UnavailableError("the trainer gave up")); });
          other.join();
          rank.group->Abort(absl::DataLossError("a later reason"));
        }
        while (rank.group->Health().ok()) Sleep(1);
        later[rank.index] = rank.group->Barrier(*rank.stream, "later");
        return rank.group->Health();
      });
  for (int r = 0; r < 2; ++r) {
    CHECK(absl::IsUnavailable(statuses[r]));
    CHECK(absl::IsAborted(later[r]));
    CHECK(Contains(later[r], "barrier 'later'"));
    CHECK(Contains(later[r], "the trainer gave up"));
  }
}

TEST_CASE("NCCL abort: it ends though rank 0 does not answer and the group is checked",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  HeldLine line;
  Meeting meeting = Meet(2, absl::Minutes(5), [&](RendezvousOptions& o) { line.Join(o, 1); });
  const std::vector<absl::Status> statuses =
      OnEachMember(meeting, [&](Rendezvous& rendezvous) -> absl::Status {
        CudaDevice::Options options;
        options.id = rendezvous.rank();
        ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<CudaDevice> device,
                              CudaDevice::Create(options));
        ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<ProcessGroup> group,
                              CreateNcclGroup(device.get(), &rendezvous, {}));
        CheckedGroup checked(group.get(), &rendezvous);
        if (rendezvous.rank() == 1) {
          line.Hold(true);
          checked.Abort(absl::UnavailableError("the trainer gave up"));
          line.Hold(false);
        }
        (void)Soon([&] { return !checked.Health().ok(); });
        return checked.Health();
      });
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    CHECK(absl::IsUnavailable(status));
    CHECK(Contains(status, "the trainer gave up"));
  }
}

TEST_CASE("NCCL abort: one that NCCL answers with an error ends the group all the same",
          "[collectives][nccl][thread]") {
  const NcclStandin standin;
  NcclWorld world(2);
  standin::FailNccl("ncclCommAbort", 1, ncclInternalError);
  const std::vector<absl::Status> statuses =
      OnEachNcclRank(world, [](const NcclTestRank& rank) -> absl::Status {
        ZERO_RETURN_IF_ERROR(GatherOnNccl(rank, "before", 16));
        if (rank.index == 0) rank.group->Abort(absl::UnavailableError("the trainer gave up"));
        while (rank.group->Health().ok()) Sleep(1);
        return rank.group->Health();
      });
  CHECK(standin::NcclHasFailed());
  for (const absl::Status& status : statuses) CHECK(absl::IsUnavailable(status));
}

TEST_CASE("NCCL abort: a rank that is not connected yet does not wait for the others",
          "[collectives][nccl][thread]") {
  // The job has failed before a rank begins with NCCL.
  const NcclStandin standin;
  NcclWorld world(2);
  const double start = Seconds();
  const std::vector<absl::Status> statuses = [&] {
    std::thread other([&] {
      world.channels.channel(1)->Exchange("nccl", "22809,0,,,66,,").IgnoreError();
      world.channels.Die(1);
    });
    absl::StatusOr<std::unique_ptr<CudaDevice>> device = CudaDevice::Create();
    std::vector<absl::Status> result = {device.status()};
    if (device.ok()) {
      result[0] = CreateNcclGroup(device->get(), world.channels.channel(0), world.options).status();
    }
    other.join();
    return result;
  }();
  CHECK(Seconds() - start < kSoon);
  CHECK(absl::IsAborted(statuses[0]));
  CHECK(Contains(statuses[0], "rank 1 has ended"));
}

TEST_CASE("NCCL abort: a rank that only polls for the others ends with it",
          "[collectives][nccl][thread]") {
  // Rank 1 never makes a group: rank 0 is inside NCCL's start.
  const NcclStandin standin;
  NcclWorld world(2);
  std::thread aborter([&] {
    Sleep(100);
    world.channels.Die(1);
  });
  absl::Status status;
  std::thread rank_0([&] {
    CudaDevice::Options options;
    absl::StatusOr<std::unique_ptr<CudaDevice>> device = CudaDevice::Create(options);
    status = device.status();
    if (device.ok()) {
      status = CreateNcclGroup(device->get(), world.channels.channel(0), world.options).status();
    }
  });
  // It says who it is, and goes.
  std::thread rank_1(
      [&] { world.channels.channel(1)->Exchange("nccl", "22809,0,,,66,,").IgnoreError(); });
  rank_0.join();
  rank_1.join();
  aborter.join();
  INFO(status.ToString());
  CHECK(absl::IsAborted(status));
  CHECK(Contains(status, "rank 1 has ended"));
}

}  // namespace
}  // namespace zero::test
