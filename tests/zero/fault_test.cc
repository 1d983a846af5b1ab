// "Any failure at any point: exactly one of succeeded; unchanged and usable; unchanged and group
// dead; poisoned": the n-th call, operation or collective of a step fails, for every n until the
// step succeeds.
#include <cerrno>
#include <climits>

#include "collectives/local_group.h"
#include "device/status.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/disk_faults.h"
#include "tests/zero/fault_loop.h"
#include "tests/zero/faults.h"
#include "zero/sharded_optimizer.h"

namespace zero::test {
namespace {

// The last rank's n-th call of `kind` fails.
FaultBackend OnHost(FaultKind kind, absl::StatusCode code = absl::StatusCode::kUnavailable) {
  struct Counters {
    FaultCounter faulty, idle;
    int faulty_rank = 0;
    FaultCounter* of(int rank) { return rank == faulty_rank ? &faulty : &idle; }
  };
  const auto counters = std::make_shared<Counters>();
  FaultBackend backend;
  backend.run_ranks = [counters](int ranks,
                                 const std::function<absl::Status(ProcessGroup*, Device*)>& body) {
    counters->faulty_rank = ranks - 1;
    LocalWorld world(ranks, absl::Seconds(20));
    return RunRanks(world, [&](ProcessGroup* group) {
      FaultCounter* const mine = counters->of(group->rank());
      FaultyDevice device(mine);
      FaultyGroup faulty(group, mine);
      return body(&faulty, &device);
    });
  };
  backend.arm = [counters, kind, code](int rank, int64_t n) {
    counters->of(rank)->Arm(kind, rank == counters->faulty_rank ? n : INT64_MAX, code);
  };
  backend.disarm = [counters](int rank) { counters->of(rank)->Disarm(); };
  backend.fired = [counters] { return counters->faulty.fired(); };
  backend.what = [counters] { return counters->faulty.what(); };
  return backend;
}

}  // namespace

TEST_CASE("Faults: whatever call of a step fails leaves it done or undone or poisoned",
          "[zero][faults]") {
  const int stage = GENERATE(0, 1, 2, 3);
  for (const int ranks : {1, 2}) {
    std::map<End, int> met =
        FailEverywhere(FaultConfig(stage), ranks, [] { return OnHost(FaultKind::kCall); });
    INFO("stage " << stage << ", ranks " << ranks);
    CHECK(met[End::kDead] > 0);
    CHECK(met[End::kSucceeded] > 0);
  }
}

// Codes that are also those of misuse say nothing about what has changed.
TEST_CASE("Faults: whatever the code of a failing call a step is done or undone or poisoned",
          "[zero][faults]") {
  const int stage = GENERATE(0, 1, 2, 3);
  for (const absl::StatusCode code :
       {absl::StatusCode::kInvalidArgument, absl::StatusCode::kFailedPrecondition,
        absl::StatusCode::kNotFound}) {
    INFO("stage " << stage << ", " << absl::StatusCodeToString(code));
    const auto make = [code] { return OnHost(FaultKind::kCall, code); };
    std::map<End, int> met = FailEverywhere(FaultConfig(stage), 1, make);
    CHECK(met[End::kDead] + met[End::kPoisoned] > 0);
    CHECK(met[End::kSucceeded] > 0);
  }
}

TEST_CASE("Faults: whatever operation of a step fails leaves it done or undone or poisoned",
          "[zero][faults]") {
  const int stage = GENERATE(0, 1, 2, 3);
  for (const int ranks : {1, 2}) {
    std::map<End, int> met =
        FailEverywhere(FaultConfig(stage), ranks, [] { return OnHost(FaultKind::kOperation); });
    INFO("stage " << stage << ", ranks " << ranks);
    CHECK(met[End::kDead] > 0);
    CHECK(met[End::kPoisoned] > 0);
    CHECK(met[End::kSucceeded] > 0);
  }
}

TEST_CASE("Faults: whatever collective of a step fails leaves it done or undone or poisoned",
          "[zero][faults]") {
  for (int stage = 0; stage < 4; ++stage) {
    std::map<End, int> met =
        FailEverywhere(FaultConfig(stage), 2, [] { return OnHost(FaultKind::kCollective); });
    INFO("stage " << stage);
    CHECK(met[End::kDead] > 0);
    CHECK(met[End::kSucceeded] > 0);
  }
}

namespace {

// Stages 1 to 3 with everything offloaded that the stage offloads, in pieces of two sizes.
Config OffloadedFaultConfig(int stage, Place place, const std::string& folder) {
  Config config = FaultConfig(stage);
  config.offload.optimizer = place;
  if (stage == 3) config.offload.parameters = place;
  config.offload.ratio = 0.6;
  config.offload.nvme_path = folder;
  config.offload.piece_elements = 2048;
  config.offload.buffer_count = 2;
  return config;
}

// Updated while backward runs: from the first sum on, nothing is undone.
Config EarlyFaultConfig(int stage, Place place, const std::string& folder) {
  Config config = OffloadedFaultConfig(stage, place, folder);
  config.clip_norm = 0;
  config.check_overflow = false;
  return config;
}

void FailOffloaded(FaultKind kind, const Config& config) {
  INFO("stage " << config.stage << ", " << Name(config.offload.optimizer));
  std::map<End, int> met = FailEverywhere(config, 2, [kind] { return OnHost(kind); });
  CHECK(met[End::kDead] > 0);
  CHECK(met[End::kSucceeded] > 0);
  if (kind == FaultKind::kOperation) CHECK(met[End::kPoisoned] > 0);
}

void FailOffloaded(FaultKind kind, int stage, Place place) {
  const TemporaryFolder folder;
  FailOffloaded(kind, OffloadedFaultConfig(stage, place, folder.path()));
  CHECK(folder.Names().empty());
}

}  // namespace

TEST_CASE("Faults: with states offloaded a failing call leaves a step done or undone or poisoned",
          "[zero][faults]") {
  const int stage = GENERATE(1, 2, 3);
  FailOffloaded(FaultKind::kCall, stage, Place::kHost);
  FailOffloaded(FaultKind::kCall, stage, Place::kNvme);
}

TEST_CASE("Faults: with states offloaded a failing operation leaves a step done or undone or dead",
          "[zero][faults]") {
  const int stage = GENERATE(1, 2, 3);
  FailOffloaded(FaultKind::kOperation, stage, Place::kHost);
  FailOffloaded(FaultKind::kOperation, stage, Place::kNvme);
}

TEST_CASE("Faults: updated during backward a failure leaves a step done or undone or poisoned",
          "[zero][faults]") {
  const int stage = GENERATE(1, 2, 3);
  FailOffloaded(FaultKind::kCall, EarlyFaultConfig(stage, Place::kHost, ""));
  FailOffloaded(FaultKind::kOperation, EarlyFaultConfig(stage, Place::kHost, ""));
  FailOffloaded(FaultKind::kCollective, EarlyFaultConfig(stage, Place::kHost, ""));
  const TemporaryFolder folder;
  std::map<End, int> met = FailEverywhere(EarlyFaultConfig(stage, Place::kNvme, folder.path()), 2,
                                          [] { return FailingDisk(HostBackend(), EIO); });
  CHECK(met[End::kPoisoned] > 0);
  CHECK(met[End::kSucceeded] > 0);
  CHECK(folder.Names().empty());
}

TEST_CASE("Faults: whatever transfer of a disk fails a step is done or undone or poisoned",
          "[zero][faults]") {
  const int stage = GENERATE(1, 2, 3);
  for (const int error : {EIO, ENOSPC}) {
    const TemporaryFolder folder;
    INFO("stage " << stage << ", errno " << error);
    std::map<End, int> met =
        FailEverywhere(OffloadedFaultConfig(stage, Place::kNvme, folder.path()), 2,
                       [error] { return FailingDisk(HostBackend(), error); });
    CHECK(met[End::kDead] > 0);
    CHECK(met[End::kPoisoned] > 0);
    CHECK(met[End::kSucceeded] > 0);
    CHECK(folder.Names().empty());
  }
}

TEST_CASE("Faults: Create that fails anywhere leaves nothing and may be called again",
          "[zero][faults]") {
  for (int stage = 0; stage < 4; ++stage) {
    const Config config = FaultConfig(stage);
    const absl::StatusOr<FaultReference> reference = RunReference(config, 1);
    REQUIRE_OK(reference.status());
    int failures = 0;
    for (int64_t n = 0;; ++n) {
      FaultCounter counter;
      FaultyDevice device(&counter);
      LocalWorld world(1, absl::Seconds(20));
      counter.Arm(FaultKind::kCall, n, absl::StatusCode::kResourceExhausted);
      const absl::StatusOr<std::unique_ptr<ShardedOptimizer>> optimizer =
          ShardedOptimizer::Create(config, FaultModel(), &device, world.group(0));
      counter.Disarm();
      if (!counter.fired()) break;
      INFO("stage " << stage << ", call " << n << ", " << counter.what());
      ++failures;
      REQUIRE_FALSE(optimizer.ok());
      for (const MemoryUse& use : device.memory()) CHECK(use.current == 0);
      // The group too is as it was.
      const absl::StatusOr<std::unique_ptr<FaultRank>> rank =
          FaultRank::Create(config, world.group(0), &device);
      REQUIRE_OK(rank.status());
      CHECK_OK((*rank)->Step(0));
      const absl::StatusOr<States> states = (*rank)->Read();
      REQUIRE_OK(states.status());
      CHECK(*states == reference->before[0]);
    }
    CHECK(failures > 10);
  }
}

}  // namespace zero::test
