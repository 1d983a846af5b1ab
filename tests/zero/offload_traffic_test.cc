// What offloading moves in a step is what the plan says.
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/offload_cells.h"

namespace zero::test {
namespace {

// Of rank 0, from the end of the second step to the end of the third.
struct Moved {
  absl::Status status;
  Plan plan;
  OffloadTraffic traffic;
};

OffloadTraffic Counted(const ShardedOptimizer& optimizer) {
  const nlohmann::json json = nlohmann::json::parse(optimizer.accounting_json());
  return {json["link"]["to_device"], json["link"]["from_device"], json["disk"]["read"],
          json["disk"]["written"]};
}

Moved MeasureStep(ToyRun run) {
  run.evaluate_between = false;
  run.evaluate_within = 0;
  std::vector<OffloadTraffic> after;
  run.between = [&after](ShardedOptimizer& optimizer, int rank, int) -> absl::Status {
    const absl::Status finished = optimizer.Finish();
    if (rank == 0) after.push_back(Counted(optimizer));
    return finished;
  };
  const Outcome outcome = RunToy(run);
  Moved moved{outcome.status, outcome.plan, {}};
  if (after.size() != 4) return moved;
  moved.traffic = {
      after[3].to_device - after[2].to_device, after[3].from_device - after[2].from_device,
      after[3].disk_read - after[2].disk_read, after[3].disk_written - after[2].disk_written};
  return moved;
}

void CheckTraffic(const OffloadCell& cell) {
  INFO(cell.Name());
  const TemporaryFolder folder;
  const Moved kept = MeasureStep(MakeRun(cell, ""));
  const Moved offloaded = MeasureStep(MakeRun(cell, folder.path()));
  REQUIRE_OK(kept.status);
  REQUIRE_OK(offloaded.status);
  const OffloadTraffic planned = offloaded.plan.step_offload(cell.micro_batches);
  CHECK(offloaded.traffic.to_device - kept.traffic.to_device == planned.to_device);
  CHECK(offloaded.traffic.from_device - kept.traffic.from_device == planned.from_device);
  CHECK(offloaded.traffic.disk_read == planned.disk_read);
  CHECK(offloaded.traffic.disk_written == planned.disk_written);
  CHECK(planned.to_device > 0);
  CHECK((planned.disk_read > 0) ==
        (cell.optimizer == Place::kNvme || cell.parameters == Place::kNvme));
}

TEST_CASE("MakePlan: a step moves over link and disk what the plan says", "[zero][offload]") {
  OffloadCell cell;
  cell.model = "large";
  cell.parameters = GENERATE(Place::kDevice, Place::kHost, Place::kNvme);
  cell.optimizer = GENERATE(Place::kHost, Place::kNvme);
  cell.micro_batches = GENERATE(1, 3);
  cell.ranks = cell.micro_batches == 1 ? 2 : 1;
  CheckTraffic(cell);
  cell.master = MasterKind::kSplit;
  cell.ratio = 0.3;
  CheckTraffic(cell);
  cell.gradients = false;
  cell.dtype = DType::kF32;
  cell.master = MasterKind::kF32;
  CheckTraffic(cell);
  if (cell.parameters != Place::kDevice) return;
  cell.stage = 1;
  CheckTraffic(cell);
  cell.stage = 2;
  cell.gradients = true;
  cell.dtype = DType::kBF16;
  cell.accumulation = DType::kBF16;
  CheckTraffic(cell);
}

// One unit of 8192 bf16 elements on two ranks: slices of 4096, records in two pieces of 2048.
Plan SmallPlan(int stage, Place optimizer, Place parameters) {
  Config config;
  config.stage = stage;
  config.offload.optimizer = optimizer;
  config.offload.parameters = parameters;
  config.offload.nvme_path = "/nowhere";
  config.offload.piece_elements = 2048;
  Parameter parameter;
  parameter.name = "w";
  parameter.shape = {8192};
  parameter.dtype = DType::kBF16;
  const auto plan = MakePlan(config, Model{{{"unit", {parameter}}}}, 2);
  REQUIRE_OK(plan.status());
  return *plan;
}

bool Same(const OffloadTraffic& a, const OffloadTraffic& b) {
  return a.to_device == b.to_device && a.from_device == b.from_device &&
         a.disk_read == b.disk_read && a.disk_written == b.disk_written;
}

TEST_CASE("Plan: the bytes of a step are those that a hand computes", "[zero][offload]") {
  const int64_t scalars =
      SmallPlan(1, Place::kHost, Place::kDevice).step_offload(1).from_device - 4096 * 4;
  CHECK(scalars > 0);
  CHECK(scalars < 200);
  // Stage 1 sends the fp32 sums once, and gets bf16 weights back.
  CHECK(Same(SmallPlan(1, Place::kHost, Place::kDevice).step_offload(3),
             {4096 * 2, 4096 * 4 + scalars, 0, 0}));
  // Stage 2 sends them three times and fetches them twice.
  CHECK(Same(SmallPlan(2, Place::kHost, Place::kDevice).step_offload(3),
             {4096 * 2 + 2 * 4096 * 4, 3 * 4096 * 4 + scalars, 0, 0}));
  // On a disk records of 16 bytes an element are read, 12 written; gradients 3 times, 2 of them
  // beside their record.
  CHECK(Same(SmallPlan(2, Place::kNvme, Place::kDevice).step_offload(3),
             {4096 * 2 + 2 * 4096 * 4, 3 * 4096 * 4 + scalars, 4096 * 16 + 2 * 4096 * 4,
              4096 * 12 + 3 * 4096 * 4}));
  // One unit is gathered once and stays: a slice of 8 KiB, which is written once.
  CHECK(Same(SmallPlan(3, Place::kNvme, Place::kNvme).step_offload(1),
             {4096 * 2, 4096 * 4 + scalars, 4096 * 16 + 4096 * 2, 4096 * 16 + 4096 * 2}));
  CHECK(Same(SmallPlan(3, Place::kDevice, Place::kDevice).step_offload(2), {}));
}

}  // namespace
}  // namespace zero::test
