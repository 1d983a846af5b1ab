// Ranks and their collectives under the seeded scheduler: no order changes what they give, and
// deadlines pass in virtual time.
#include <memory>
#include <string>
#include <vector>

#include "collectives/local_group.h"
#include "collectives/ordered_reduction.h"
#include "device/host_device.h"
#include "device/seeded_scheduler.h"
#include "device/status.h"
#include "tests/collectives/group_test_util.h"
#include "tests/collectives/staged_group.h"
#include "tests/device/seeds.h"

namespace zero::test {
namespace {

HostDevice::Options On(const std::shared_ptr<SeededScheduler>& scheduler) {
  HostDevice::Options options;
  options.scheduler = scheduler;
  return options;
}

// Each rank makes numbers on one stream, gathers them on another, and checks what came on the
// first.
absl::Status Exchange(ProcessGroup* group, Device* device, int rounds) {
  const int size = group->size(), rank = group->rank();
  // Lives until the streams have run out.
  std::vector<int32_t> mine(4), all(4 * static_cast<size_t>(size));
  ZERO_ASSIGN_OR_RETURN(const auto comm, device->CreateStream("comm"));
  ZERO_ASSIGN_OR_RETURN(const auto math, device->CreateStream("math"));
  ZERO_ASSIGN_OR_RETURN(const auto event, device->CreateEvent());
  for (int round = 0; round < rounds; ++round) {
    ZERO_RETURN_IF_ERROR(math->Enqueue("make", [&mine, rank, round] {
      for (int i = 0; i < 4; ++i) mine[i] = 100 * rank + 10 * round + i;
      return absl::OkStatus();
    }));
    ZERO_RETURN_IF_ERROR(event->Record(*math));
    ZERO_RETURN_IF_ERROR(comm->Wait(*event));
    const AllGatherPiece piece{mine.data(), all.data(), 16, 16};
    ZERO_RETURN_IF_ERROR(group->AllGather(*comm, "numbers", {&piece, 1}));
    ZERO_RETURN_IF_ERROR(event->Record(*comm));
    ZERO_RETURN_IF_ERROR(math->Wait(*event));
    ZERO_RETURN_IF_ERROR(math->Enqueue("check", [&all, size, round]() -> absl::Status {
      for (int i = 0; i < 4 * size; ++i) {
        const int expected = 100 * (i / 4) + 10 * round + i % 4;
        if (all[i] != expected) return absl::DataLossError(std::to_string(all[i]));
      }
      return absl::OkStatus();
    }));
  }
  return math->Synchronize();
}

// Sums that follow each other closely, each of other numbers.
absl::Status Reduce(ProcessGroup* group, Device* device, int rounds) {
  constexpr int kColumns = 3;
  const int size = group->size(), rank = group->rank();
  const auto value = [size](int q, int round, int i) {
    return static_cast<float>((q * 8 + round) * size * kColumns + i);
  };
  std::vector<std::vector<float>> sent, sums;  // live until the streams have run out
  ZERO_ASSIGN_OR_RETURN(const auto comm, device->CreateStream("comm"));
  ZERO_ASSIGN_OR_RETURN(const auto math, device->CreateStream("math"));
  ZERO_ASSIGN_OR_RETURN(OrderedReduction reduction,
                        OrderedReduction::Create(device, group, size * kColumns * 4));
  for (int round = 0; round < rounds; ++round) {
    std::vector<float>& send = sent.emplace_back();
    for (int i = 0; i < size * kColumns; ++i) send.push_back(value(rank, round, i));
    ReductionPiece piece;
    piece.send = send.data();
    piece.slice = piece.columns = kColumns;
    piece.out = sums.emplace_back(kColumns).data();
    ZERO_RETURN_IF_ERROR(reduction.Run(*comm, *math, "sums", {&piece, 1}));
  }
  ZERO_RETURN_IF_ERROR(comm->Synchronize());
  ZERO_RETURN_IF_ERROR(math->Synchronize());
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < kColumns; ++i) {
      float expected = 0;
      for (int q = 0; q < size; ++q) expected += value(q, round, rank * kColumns + i);
      if (sums[round][i] != expected) return absl::DataLossError(std::to_string(round));
    }
  }
  return absl::OkStatus();
}

}  // namespace

TEST_CASE("SeededGroup: ranks gather the same in every order", "[collectives][thread]") {
  for (const uint64_t seed : Seeds(1, 100)) {
    CAPTURE_SEED(seed);
    const auto scheduler = std::make_shared<SeededScheduler>(seed);
    LocalWorld world(3);
    REQUIRE_OK(RunRanks(
        world,
        [&](ProcessGroup* group) {
          HostDevice device(On(scheduler));
          return Exchange(group, &device, 4);
        },
        scheduler.get()));
  }
}

TEST_CASE("SeededGroup: sums received or read where they lie are the same in every order",
          "[collectives][thread]") {
  for (const bool staged : {false, true}) {
    for (const uint64_t seed : Seeds(1, 100)) {
      CAPTURE(staged);
      CAPTURE_SEED(seed);
      const auto scheduler = std::make_shared<SeededScheduler>(seed);
      LocalWorld world(3);
      REQUIRE_OK(RunRanks(
          world,
          [&](ProcessGroup* group) {
            HostDevice device(On(scheduler));
            StagedGroup receiving(group);
            return Reduce(staged ? &receiving : group, &device, 5);
          },
          scheduler.get()));
    }
  }
}

TEST_CASE("SeededGroup: a rank that does not come is named when a virtual hour has passed",
          "[collectives][thread]") {
  for (const uint64_t seed : Seeds(1, 30)) {
    CAPTURE_SEED(seed);
    const auto scheduler = std::make_shared<SeededScheduler>(seed);
    LocalWorld world(3, absl::Hours(1));
    const absl::Status status = RunRanks(
        world,
        [&](ProcessGroup* group) {
          HostDevice device(On(scheduler));
          return Exchange(group, &device, group->rank() == 1 ? 2 : 3);
        },
        scheduler.get());
    CHECK(absl::IsDeadlineExceeded(status));
    CHECK_THAT(std::string(status.message()), ContainsSubstring("waited 1h for rank 1"));
    CHECK(scheduler->now_us() >= 3.6e9);
  }
}

TEST_CASE("SeededGroup: without a deadline a rank that does not come is a deadlock with names",
          "[collectives][thread]") {
  for (const uint64_t seed : Seeds(1, 30)) {
    CAPTURE_SEED(seed);
    const auto scheduler = std::make_shared<SeededScheduler>(seed);
    LocalWorld world(2, absl::InfiniteDuration());
    const absl::Status status = RunRanks(
        world,
        [&](ProcessGroup* group) {
          HostDevice device(On(scheduler));
          return Exchange(group, &device, group->rank() == 1 ? 2 : 3);
        },
        scheduler.get());
    CHECK(absl::IsInternal(status));
    for (const char* part :
         {"deadlock", "stream 'comm' of driver 0: operation 'numbers' waits",
          "stream 'math' of driver 0: operation 'wait' waits for an event of stream 'comm'",
          "driver 0 waits for an event of stream 'math'"}) {
      CHECK_THAT(std::string(status.message()), ContainsSubstring(part));
    }
  }
}

TEST_CASE("SeededGroup: a failing rank ends the others with its error in every order",
          "[collectives][thread]") {
  for (const uint64_t seed : Seeds(1, 100)) {
    CAPTURE_SEED(seed);
    const auto scheduler = std::make_shared<SeededScheduler>(seed);
    LocalWorld world(3);
    const absl::Status status = RunRanks(
        world,
        [&](ProcessGroup* group) {
          HostDevice::Options options = On(scheduler);
          int checks = 0;
          if (group->rank() == 2) {
            options.hook = [&checks](const std::string&, const char* operation) -> absl::Status {
              if (std::string(operation) != "check" || ++checks < 2) return absl::OkStatus();
              return absl::DataLossError("planted");
            };
          }
          HostDevice device(options);
          return Exchange(group, &device, 3);
        },
        scheduler.get());
    CHECK(absl::IsDataLoss(status));
    for (const char* part : {"rank 2", "planted"}) {
      CHECK_THAT(std::string(status.message()), ContainsSubstring(part));
    }
    CHECK(scheduler->now_us() < 1e6);  // nobody waited for the deadline
  }
}

}  // namespace zero::test
