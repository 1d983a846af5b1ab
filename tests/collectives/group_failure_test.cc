// How a group dies: which error each rank gets, how soon, and what stays safe.
#include <algorithm>
#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "device/status.h"
#include "tests/collectives/group_test_util.h"
#include "tests/collectives/rendezvous_test_util.h"

namespace zero::test {
namespace {

constexpr double kSoon = 20;  // seconds; far below the deadlines that must not be waited for
const absl::Duration kLong = absl::Minutes(10);

bool Contains(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

TEST_CASE("Disagreement: another size is reported on all ranks with two ranks and their calls",
          "[collectives][thread]") {
  const GroupKind& kind = EachHostKind();
  CAPTURE(kind.name);
  const auto world = MakeWorld(kind, 3, kLong);
  const double start = Seconds();
  LineUp line_up(3);
  const auto statuses = OnEachRank(*world, [&](const Rank& rank) -> absl::Status {
    const int64_t bytes = rank.index == 1 ? 16 : 8;
    ZERO_ASSIGN_OR_RETURN(const DeviceBytes memory, DeviceBytes::Create(rank, 64));
    const AllGatherPiece piece{memory.data(), memory.data() + 16, bytes, bytes};
    ZERO_RETURN_IF_ERROR(line_up.Hold(*rank.stream));
    const absl::Status enqueued = rank.group->AllGather(*rank.stream, "weights", {&piece, 1});
    line_up.Enqueued();
    const absl::Status ran = rank.stream->Synchronize();
    return enqueued.ok() ? ran : enqueued;
  });
  CHECK(Seconds() - start < kSoon);
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(Contains(status, "rank 1 called all-gather 'weights' of 16 bytes"));
    CHECK((Contains(status, "rank 0 called all-gather 'weights' of 8 bytes") ||
           Contains(status, "rank 2 called all-gather 'weights' of 8 bytes")));
  }
  CHECK(absl::IsInvalidArgument(world->group(0)->Health()));
}

TEST_CASE("Disagreement: another number of pieces is reported", "[collectives][thread]") {
  const GroupKind& kind = EachComparingKind();
  CAPTURE(kind.name);
  const auto world = MakeWorld(kind, 2, kLong);
  const auto statuses = OnEachRank(*world, [](const Rank& rank) -> absl::Status {
    ZERO_ASSIGN_OR_RETURN(const DeviceBytes memory, DeviceBytes::Create(rank, 64));
    const AllGatherPiece whole{memory.data(), memory.data() + 8, 8, 8};
    const AllGatherPiece half{memory.data(), memory.data() + 8, 4, 4};
    const std::vector<AllGatherPiece> pieces = rank.index == 0
                                                   ? std::vector<AllGatherPiece>{whole}
                                                   : std::vector<AllGatherPiece>{half, half};
    const absl::Status enqueued = rank.group->AllGather(*rank.stream, "pieces", pieces);
    const absl::Status ran = rank.stream->Synchronize();
    return enqueued.ok() ? ran : enqueued;
  });
  for (const absl::Status& status : statuses) {
    CHECK(Contains(status, "of 8 bytes"));
    CHECK(Contains(status, "of 4+4 bytes"));
  }
}

TEST_CASE("Disagreement: another operation or another name is reported with both calls",
          "[collectives][thread]") {
  const GroupKind& kind = EachHostKind();
  CAPTURE(kind.name);
  for (const bool other_name : {false, true}) {
    const auto world = MakeWorld(kind, 2, kLong);
    LineUp line_up(2);
    const auto statuses = OnEachRank(*world, [&](const Rank& rank) -> absl::Status {
      ZERO_ASSIGN_OR_RETURN(const DeviceBytes memory, DeviceBytes::Create(rank, 32));
      const AllGatherPiece piece{memory.data(), memory.data() + 8, 8, 8};
      const char* const name = other_name && rank.index == 1 ? "second" : "first";
      ZERO_RETURN_IF_ERROR(line_up.Hold(*rank.stream));
      const absl::Status enqueued = rank.index == 1 && !other_name
                                        ? rank.group->Barrier(*rank.stream, name)
                                        : rank.group->AllGather(*rank.stream, name, {&piece, 1});
      line_up.Enqueued();
      const absl::Status ran = rank.stream->Synchronize();
      return enqueued.ok() ? ran : enqueued;
    });
    for (const absl::Status& status : statuses) {
      INFO(status.ToString());
      CHECK(absl::IsInvalidArgument(status));
      CHECK(Contains(status, "rank 0 called all-gather 'first' of 8 bytes"));
      CHECK(Contains(status, other_name ? "rank 1 called all-gather 'second' of 8 bytes"
                                        : "rank 1 called barrier 'first'"));
    }
  }
}

TEST_CASE("Deadline: a rank that never calls is named, with the call, on every rank that waits",
          "[collectives][thread]") {
  const GroupKind& kind = EachKind();
  CAPTURE(kind.name);
  const auto world = MakeWorld(kind, 3, absl::Milliseconds(300));
  const double start = Seconds();
  const auto statuses = OnEachRank(*world, [](const Rank& rank) {
    return rank.index == 2 ? absl::OkStatus() : GatherBytes(rank, "late", 8);
  });
  CHECK(Seconds() - start >= 0.3);
  CHECK(Seconds() - start < kSoon);
  CHECK_OK(statuses[2]);
  for (int r : {0, 1}) {
    INFO(statuses[r].ToString());
    CHECK(absl::IsDeadlineExceeded(statuses[r]));
    CHECK(Contains(statuses[r], "all-gather 'late'"));
    CHECK(Contains(statuses[r], "for rank 2"));
    CHECK(Contains(statuses[r], "300ms"));
  }
}

TEST_CASE("Deadline: all ranks that are missing are named, and one that comes late gets the error",
          "[collectives][thread]") {
  const GroupKind& kind = EachKind();
  CAPTURE(kind.name);
  const auto world = MakeWorld(kind, 3, std::max(kind.shortest, absl::Milliseconds(100)));
  std::atomic<bool> expired{false};
  const auto statuses = OnEachRank(*world, [&](const Rank& rank) {
    if (rank.index == 0) {
      const absl::Status status = GatherBytes(rank, "late", 8);
      expired = true;
      return status;
    }
    // Between processes the news takes a moment.
    while (!expired || rank.group->Health().ok()) Sleep(1);
    return GatherBytes(rank, "late", 8);
  });
  INFO(statuses[0].ToString());
  CHECK(absl::IsDeadlineExceeded(statuses[0]));
  CHECK(Contains(statuses[0], "for rank 1, 2"));
  for (int r : {1, 2}) {
    INFO(statuses[r].ToString());
    CHECK(absl::IsAborted(statuses[r]));
    CHECK(Contains(statuses[r], "for rank 1, 2"));
  }
}

TEST_CASE("Deadline: arrivals around the deadline fail on all ranks or the group is dead on all",
          "[collectives][thread]") {
  const GroupKind& kind = EachKind();
  CAPTURE(kind.name);
  int succeeded = 0;
  for (int round = 0; round < 12; ++round) {
    const auto world = MakeWorld(kind, 2, kind.shortest);
    const auto statuses = OnEachRank(*world, [&](const Rank& rank) {
      const auto deadline = static_cast<int>(absl::ToInt64Milliseconds(kind.shortest));
      if (rank.index == 1) Sleep(round == 0 ? 0 : deadline - 4 + round % 6);
      return GatherBytes(rank, "close", 8);
    });
    if (kind.all_or_nothing) {
      CHECK(statuses[0].ok() == world->group(0)->Health().ok());
      CHECK(statuses[0].ok() == statuses[1].ok());
    }
    if (!statuses[0].ok() || !statuses[1].ok()) {
      for (int r : {0, 1}) CHECK(Soon([&] { return !world->group(r)->Health().ok(); }));
    } else {
      ++succeeded;
    }
  }
  CHECK(succeeded <= 12);
}

TEST_CASE("Deadline: a slow step between calls is none as long as all are slow",
          "[collectives][thread]") {
  const GroupKind& kind = EachHostKind();
  CAPTURE(kind.name);
  // The clock of a call starts when a rank waits for it, not when it was enqueued.
  const auto world = MakeWorld(kind, 2, absl::Milliseconds(1500));
  const auto statuses = OnEachRank(*world, [](const Rank& rank) -> absl::Status {
    for (int i = 0; i < 4; ++i) {
      ZERO_RETURN_IF_ERROR(rank.stream->Enqueue("compute", [] {
        Sleep(500);
        return absl::OkStatus();
      }));
      ZERO_RETURN_IF_ERROR(rank.group->Barrier(*rank.stream, "meet"));
    }
    return rank.stream->Synchronize();
  });
  CHECK(FirstError(statuses) == "");
}

TEST_CASE("Abort: ranks that wait end at once with the reason, later calls are kAborted with it",
          "[collectives][thread]") {
  const GroupKind& kind = EachKind();
  CAPTURE(kind.name);
  const auto world = MakeWorld(kind, 3, kLong);
  std::thread aborter([&] {
    // Counted as soon as it is made: where ranks meet on the host it does not return.
    for (int r : {0, 1}) {
      (void)Soon([&] { return world->group(r)->traffic().count("waiting") != 0; });
    }
    Sleep(10);
    world->group(2)->Abort(absl::UnavailableError("the trainer gave up"));
    world->group(1)->Abort(absl::DataLossError("a later reason"));
  });
  const double start = Seconds();
  std::vector<absl::Status> later(3);
  const auto statuses = OnEachRank(*world, [&](const Rank& rank) -> absl::Status {
    if (rank.index == 2) return absl::OkStatus();
    const absl::Status waiting = rank.group->Barrier(*rank.stream, "waiting");
    const absl::Status ran = rank.stream->Synchronize();
    later[rank.index] = rank.group->Barrier(*rank.stream, "later");
    return Outcome(rank, waiting, ran);
  });
  aborter.join();
  CHECK(Seconds() - start < kSoon);
  for (int r : {0, 1}) {
    CHECK(absl::IsUnavailable(statuses[r]));
    CHECK(Contains(statuses[r], "the trainer gave up"));
    CHECK(absl::IsAborted(later[r]));
    CHECK(Contains(later[r], "barrier 'later'"));
    CHECK(Contains(later[r], "the trainer gave up"));
  }
  for (int r = 0; r < 3; ++r) {
    CHECK(Soon([&] { return absl::IsUnavailable(world->group(r)->Health()); }));
  }
}

TEST_CASE("Abort: an operation of a stream may call it", "[collectives][thread]") {
  const GroupKind& kind = EachHostKind();
  CAPTURE(kind.name);
  const auto world = MakeWorld(kind, 2, kLong);
  std::latch enqueued(1);
  const double start = Seconds();
  const auto statuses = OnEachRank(*world, [&](const Rank& rank) -> absl::Status {
    if (rank.index == 0) {
      const absl::Status waiting = rank.group->Barrier(*rank.stream, "waiting");
      enqueued.count_down();
      const absl::Status ran = rank.stream->Synchronize();
      return waiting.ok() ? ran : waiting;
    }
    enqueued.wait();
    ZERO_RETURN_IF_ERROR(rank.stream->Enqueue("aborts", [&rank] {
      rank.group->Abort(absl::UnavailableError("from the stream"));
      return absl::OkStatus();
    }));
    return rank.stream->Synchronize();
  });
  CHECK(Seconds() - start < kSoon);
  CHECK(absl::IsUnavailable(statuses[0]));
  CHECK_OK(statuses[1]);
}

TEST_CASE("Failed stream: the group fails on every rank at once, and names the rank and the error",
          "[collectives][thread]") {
  const GroupKind& kind = EachHostKind();
  CAPTURE(kind.name);
  const auto world = MakeWorld(kind, 3, kLong);
  const double start = Seconds();
  const auto statuses = OnEachRank(*world, [](const Rank& rank) -> absl::Status {
    // The error comes to the stream of the collectives by an event from another one.
    const auto compute = NewStream(*rank.device, "compute");
    ZERO_ASSIGN_OR_RETURN(const auto event, rank.device->CreateEvent());
    ZERO_RETURN_IF_ERROR(compute->Enqueue("forward", [&rank] {
      return rank.index == 1 ? absl::DataLossError("bad sample") : absl::OkStatus();
    }));
    ZERO_RETURN_IF_ERROR(event->Record(*compute));
    ZERO_RETURN_IF_ERROR(rank.stream->Wait(*event));
    return GatherBytes(rank, "gradients", 1000);
  });
  CHECK(Seconds() - start < kSoon);
  for (int r = 0; r < 3; ++r) {
    INFO(statuses[r].ToString());
    CHECK(Contains(statuses[r], "bad sample"));
  }
  for (int r : {0, 2}) {
    CHECK((absl::IsDataLoss(statuses[r]) || absl::IsAborted(statuses[r])));
    CHECK(Contains(statuses[r], "rank 1 did not finish 'gradients'"));
  }
}

TEST_CASE("Failed stream: an error injected into any operation of a collective ends all ranks",
          "[collectives][thread]") {
  const GroupKind& kind = EachHostKind();
  CAPTURE(kind.name);
  int failures = 0;
  for (int n = 0;; ++n) {
    CAPTURE(n);
    std::atomic<int> count{0};
    const auto world = MakeWorld(kind, 2, kLong);
    const auto statuses = OnEachRank(
        *world,
        [](const Rank& rank) -> absl::Status {
          ZERO_ASSIGN_OR_RETURN(const DeviceBytes memory, DeviceBytes::Create(rank, 64));
          const AllToAllPiece piece{memory.data(), 8, memory.data() + 32, 8};
          const absl::Status first = rank.group->AllToAll(*rank.stream, "one", {&piece, 1});
          const absl::Status second = rank.group->Barrier(*rank.stream, "two");
          const absl::Status ran = rank.stream->Synchronize();
          if (!ran.ok()) return ran;
          return first.ok() ? second : first;
        },
        [&](const std::string& stream, const char*) -> absl::Status {
          return stream == "rank-1" && count++ == n ? absl::UnavailableError("injected")
                                                    : absl::OkStatus();
        });
    if (statuses[1].ok()) {
      CHECK_OK(statuses[0]);
      break;
    }
    ++failures;
    CHECK(Contains(statuses[1], "injected"));
    // Past its last operation rank 0 may have got all that it needs.
    if (n < 2 * kind.operations - 1) CHECK(Contains(statuses[0], "injected"));
  }
  CHECK(failures == 2 * kind.operations + 1);  // two collectives, and the event of Synchronize
}

}  // namespace
}  // namespace zero::test
