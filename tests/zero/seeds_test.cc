// The stages under orders that seeds choose: no order changes a bit.
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "device/seeded_scheduler.h"
#include "tests/catch.h"
#include "tests/device/seeds.h"
#include "tests/zero/toy_trainer.h"

namespace zero::test {
namespace {

// What a seed stands for, apart from the order of things.
struct Cell {
  int stage;
  int ranks;
  int micro_batches;
  int prefetch;
  bool small_buckets;
  std::string model;

  std::string Name() const {
    return absl::StrCat("stage ", stage, ", ranks ", ranks, ", micro-batches ", micro_batches,
                        ", prefetch ", prefetch, small_buckets ? ", small buckets, " : ", ", model);
  }
};

Cell CellOf(uint64_t seed) {
  SeededRandom random(seed ^ 0x5EED);
  Cell cell;
  cell.stage = static_cast<int>(random.Below(4));
  const int ranks[] = {1, 2, 2, 3, 3, 4};
  cell.ranks = ranks[random.Below(6)];
  cell.micro_batches = random.OneIn(2) ? 1 : 3;
  cell.prefetch = static_cast<int>(random.Below(3));
  cell.small_buckets = !random.OneIn(4);
  const char* const models[] = {"tiny", "odd", "mixed"};
  cell.model = models[random.Below(3)];
  return cell;
}

ToyRun MakeRun(const Cell& cell) {
  ToyRun run;
  run.model = MakeModel(cell.model, DType::kBF16);
  run.ranks = cell.ranks;
  run.micro_batches = cell.micro_batches;
  run.steps = 2;
  run.config.stage = cell.stage;
  run.config.prefetch = cell.prefetch;
  run.config.reduce_bucket_size = cell.small_buckets ? 600 : 20 * 1024;
  run.config.groups = {{1, 0.1}, {0.5, 0}};
  run.config.clip_norm = 0.5;
  run.config.poison_slots = true;
  run.evaluate_within = cell.prefetch == 1 ? 1 : 0;
  if (cell.model == "odd") {
    run.unwritten_unit = 1;
    run.unwritten_parameter = 1;
    run.passed_over_unit = 3;
  }
  return run;
}

// Seeds of one cell share what threads give.
const Outcome& OnThreads(const Cell& cell) {
  static std::map<std::string, Outcome> known;
  const auto [found, fresh] = known.try_emplace(cell.Name());
  if (fresh) found->second = RunToy(MakeRun(cell));
  return found->second;
}

void CheckSeeds(uint64_t first, uint64_t count) {
  for (const uint64_t seed : Seeds(first, count)) {
    const Cell cell = CellOf(seed);
    CAPTURE_SEED(seed);
    INFO(cell.Name());
    const Outcome& threads = OnThreads(cell);
    REQUIRE_OK(threads.status);
    ToyRun run = MakeRun(cell);
    run.scheduler = std::make_shared<SeededScheduler>(seed);
    const Outcome seeded = RunToy(run);
    REQUIRE_OK(seeded.status);
    for (const StepResult& step : seeded.steps) REQUIRE(step.applied);
    REQUIRE(FirstDifference(threads, seeded) == "");
    REQUIRE(seeded.live_bytes_left == 0);
  }
}

}  // namespace

// Four cases, so that they can run side by side.
TEST_CASE("Seeds: orders 1 to 1000 give the bits that threads give", "[zero][seeds]") {
  CheckSeeds(1, 1000);
}
TEST_CASE("Seeds: orders 1001 to 2000 give the bits that threads give", "[zero][seeds]") {
  CheckSeeds(1001, 1000);
}
TEST_CASE("Seeds: orders 2001 to 3000 give the bits that threads give", "[zero][seeds]") {
  CheckSeeds(2001, 1000);
}
TEST_CASE("Seeds: orders 3001 to 4000 give the bits that threads give", "[zero][seeds]") {
  CheckSeeds(3001, 1000);
}

// For scripts/full_matrix.sh.
TEST_CASE("Seeds: orders 4001 to 14000 give the bits that threads give", "[.full]") {
  CheckSeeds(4001, 10000);
}

TEST_CASE("Seeds: ranks on threads that take turns are clean", "[zero][thread]") {
  CheckSeeds(1, 20);
}

TEST_CASE("Seeds: a whole training with the same seed takes the same course", "[zero]") {
  std::set<uint64_t> courses;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    uint64_t fingerprints[2];
    double ends_us[2];
    for (int repeat = 0; repeat < 2; ++repeat) {
      ToyRun run = MakeRun(CellOf(seed));
      run.scheduler = std::make_shared<SeededScheduler>(seed);
      REQUIRE_OK(RunToy(run).status);
      fingerprints[repeat] = run.scheduler->fingerprint();
      ends_us[repeat] = run.scheduler->now_us();
    }
    CHECK(fingerprints[0] == fingerprints[1]);
    CHECK(ends_us[0] == ends_us[1]);
    courses.insert(fingerprints[0]);
  }
  CHECK(courses.size() == 40);
}

}  // namespace zero::test
