// Filling, reading, saving and loading states that lie on a disk: large requests, and disks that
// fail.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/aligned_bytes.h"
#include "tests/catch.h"
#include "tests/io/faulty_transfers.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/rank_fixture.h"
#include "tests/zero/toy_trainer.h"

namespace zero::test {
namespace {

Config OnDisk(const std::string& folder) {
  Config config;
  config.stage = 3;
  config.accumulation = DType::kF32;
  config.offload.optimizer = Place::kNvme;
  config.offload.parameters = Place::kNvme;
  config.offload.nvme_path = folder;
  return config;
}

using Values = std::map<std::string, std::vector<float>>;

absl::StatusOr<Values> ReadAll(ShardedOptimizer& optimizer) {
  Values values;
  for (const State state : {State::kWeight, State::kMaster, State::kMoment1, State::kMoment2}) {
    ZERO_RETURN_IF_ERROR(optimizer.Read(
        state, [&](const Parameter& parameter, int64_t, absl::Span<const float> read) {
          std::vector<float>& all = values[absl::StrCat(Name(state), " ", parameter.name)];
          all.insert(all.end(), read.begin(), read.end());
          return absl::OkStatus();
        }));
  }
  return values;
}

// Transfers since the last Take.
struct Moved {
  int64_t read = 0, written = 0, requests = 0;
};
struct Counter {
  FaultyTransfers transfers;
  std::atomic<int64_t> read{0}, written{0}, requests{0};

  Counter() {
    transfers.transfer = [this](bool writes, size_t* bytes, off_t) {
      (writes ? written : read) += static_cast<int64_t>(*bytes);
      ++requests;
      return 0;
    };
  }
  Moved Take() { return {read.exchange(0), written.exchange(0), requests.exchange(0)}; }
};

// What sections of these kinds have on the disk, and the requests of 256 KiB that they are.
Moved Expected(const Plan& plan, const std::vector<std::optional<Section>>& kinds) {
  Moved all;
  for (const DiskSection& section :
       DiskSections(plan.config, plan.layout, plan.moments, plan.offload)) {
    if (std::find(kinds.begin(), kinds.end(), section.section) == kinds.end()) continue;
    all.read += PaddedForDisk(section.bytes);
    all.requests += (section.bytes + (1 << 18) - 1) >> 18;
  }
  all.written = all.read;
  return all;
}

}  // namespace

TEST_CASE("Offload: states are filled and read and saved in whole blocks and many at once",
          "[zero][offload]") {
  const TemporaryFolder folder, checkpoints;
  LocalWorld world(1);
  // Slices without padding; the second pieces are short.
  auto rank =
      Rank::Create(OnDisk(folder.path()), SimpleModel(3, 1'300'096, DType::kBF16), world.group(0));
  REQUIRE_OK(rank.status());
  ShardedOptimizer& optimizer = *rank->optimizer;
  const Plan& plan = optimizer.plan();
  const Moved filled = Expected(plan, {Section::kMaster, std::nullopt});
  const Moved master = Expected(plan, {Section::kMaster});
  const Moved kept = Expected(plan, {Section::kMaster, Section::kMoment1, Section::kMoment2});
  const Moved loaded =
      Expected(plan, {Section::kMaster, Section::kMoment1, Section::kMoment2, std::nullopt});
  Counter counter;
  REQUIRE_OK(optimizer.Write(State::kMaster, InitialValues()));
  Moved moved = counter.Take();
  CHECK(moved.written == filled.written);
  CHECK(moved.read == 0);
  CHECK(moved.requests == filled.requests);

  REQUIRE_OK(optimizer.Read(State::kMaster, [](const Parameter&, int64_t, absl::Span<const float>) {
    return absl::OkStatus();
  }));
  moved = counter.Take();
  CHECK(moved.written == 0);
  CHECK(moved.read == master.read);
  CHECK(moved.requests == master.requests);

  std::vector<float> gathered(1'300'096);
  REQUIRE_OK(optimizer.Gather(State::kMoment1, "u1.w", absl::MakeSpan(gathered)));
  moved = counter.Take();
  // No more than one piece before it is needed.
  CHECK(moved.read >= 4 * 1'300'096);
  CHECK(moved.requests <= 2 * kept.requests / 9);
  // Which may still be on its way: another verb ends it.
  REQUIRE_OK(optimizer.Read(State::kMaster, [](const Parameter&, int64_t, absl::Span<const float>) {
    return absl::OkStatus();
  }));
  counter.Take();

  REQUIRE_OK(optimizer.SaveCheckpoint(checkpoints.path()).status());
  REQUIRE_OK(optimizer.FinishCheckpoint());
  moved = counter.Take();
  // Small files are read too.
  CHECK(moved.read >= kept.read);
  CHECK(moved.read <= kept.read + (1 << 16));

  REQUIRE_OK(optimizer.LoadCheckpoint(checkpoints.File("step-00000000")).status());
  CHECK(counter.Take().written == loaded.written);
}

TEST_CASE("Offload: states of the host begin as zeros whichever threads clear them",
          "[zero][offload]") {
  ThreadPool pool(3);
  HostDevice::Options options;
  options.pool = &pool;
  LocalWorld world(1);
  Config config;
  config.stage = 3;
  config.offload.optimizer = Place::kHost;
  config.offload.parameters = Place::kHost;
  auto rank =
      Rank::Create(config, SimpleModel(1, 3'000'001, DType::kBF16), world.group(0), options);
  REQUIRE_OK(rank.status());
  const absl::StatusOr<Values> values = ReadAll(*rank->optimizer);
  REQUIRE_OK(values.status());
  CHECK(values->size() == 4);
  for (const auto& [name, all] : *values) {
    INFO(name);
    CHECK(all == std::vector<float>(3'000'001, 0.0f));
  }
}

TEST_CASE("Offload: whatever transfer fails of states on a disk is told and can be done again",
          "[zero][offload]") {
  const TemporaryFolder folder, checkpoints;
  LocalWorld world(1);
  Config config = OnDisk(folder.path());
  config.offload.piece_elements = 1 << 16;
  auto rank = Rank::Create(config, SimpleModel(2, 200'000, DType::kBF16), world.group(0));
  REQUIRE_OK(rank.status());
  ShardedOptimizer& optimizer = *rank->optimizer;
  REQUIRE_OK(optimizer.Write(State::kMaster, InitialValues()));
  const absl::StatusOr<Values> values = ReadAll(optimizer);
  REQUIRE_OK(values.status());
  REQUIRE_OK(optimizer.SaveCheckpoint(checkpoints.path()).status());
  REQUIRE_OK(optimizer.FinishCheckpoint());

  FaultyTransfers transfers;
  std::atomic<int64_t> left{INT64_MAX};
  transfers.transfer = [&](bool, size_t*, off_t) { return left.fetch_sub(1) == 0 ? EIO : 0; };
  // The number of failures that `act` met: the last n is one that it does not come to.
  const auto fail_each = [&](const auto& act, const auto& again) {
    int failures = 0;
    for (int64_t n = 0;; ++n) {
      left = n;
      const absl::Status status = act();
      const bool fired = left < 0;
      left = INT64_MAX;
      INFO("transfer " << n << ": " << status);
      // What is read ahead and not wanted may fail unnoticed.
      if (!fired) return failures;
      if (!status.ok()) {
        ++failures;
        const std::string message(status.message());
        CHECK_THAT(message,
                   ContainsSubstring("Input/output error") && ContainsSubstring(" bytes at byte "));
        REQUIRE_OK(again());
      }
      const absl::StatusOr<Values> after = ReadAll(optimizer);
      REQUIRE_OK(after.status());
      CHECK(*after == *values);
    }
  };
  const auto write = [&] { return optimizer.Write(State::kMaster, InitialValues()); };
  const auto half = [&] {
    CHECK(absl::IsDataLoss(optimizer.BeginPass(Pass::kTrain)));
    CHECK(absl::IsDataLoss(optimizer.SaveCheckpoint(checkpoints.path()).status()));
  };
  CHECK(fail_each(write, [&] {
          half();
          return write();
        }) >= 10);
  CHECK(fail_each([&] { return ReadAll(optimizer).status(); }, [] { return absl::OkStatus(); }) >=
        10);
  const auto load = [&] {
    return optimizer.LoadCheckpoint(checkpoints.File("step-00000000")).status();
  };
  CHECK(fail_each(load, load) >= 20);
}

TEST_CASE("Offload: a disk that fails while a checkpoint is made is told with file and bytes",
          "[zero][offload]") {
  const TemporaryFolder folder, checkpoints;
  LocalWorld world(1);
  auto rank =
      Rank::Create(OnDisk(folder.path()), SimpleModel(2, 200'000, DType::kBF16), world.group(0));
  REQUIRE_OK(rank.status());
  ShardedOptimizer& optimizer = *rank->optimizer;
  REQUIRE_OK(optimizer.Write(State::kMaster, InitialValues()));
  const absl::StatusOr<Values> values = ReadAll(optimizer);
  REQUIRE_OK(values.status());
  {
    FaultyTransfers transfers;
    transfers.transfer = [](bool writes, size_t*, off_t offset) {
      return !writes && offset > 0 ? EIO : 0;
    };
    const absl::Status status = optimizer.SaveCheckpoint(checkpoints.path()).status();
    INFO(status);
    CHECK(absl::IsUnavailable(status));
    CHECK_THAT(std::string(status.message()), ContainsSubstring(folder.path()) &&
                                                  ContainsSubstring("Input/output error") &&
                                                  ContainsSubstring(" bytes at byte "));
  }
  // The group is done, and the states are as they were.
  CHECK_FALSE(optimizer.BeginPass(Pass::kTrain).ok());
  const absl::StatusOr<Values> after = ReadAll(optimizer);
  REQUIRE_OK(after.status());
  CHECK(*after == *values);
}

}  // namespace zero::test
