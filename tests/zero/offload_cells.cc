#include "tests/zero/offload_cells.h"

#include "absl/strings/str_format.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/covering.h"
#include "tests/zero/stage_cells.h"

namespace zero::test {

std::string OffloadCell::Name() const {
  return absl::StrFormat(
      "stage %d, optimizer %s, parameters %s, gradients %s, ratio %g, micro-batches %d, clip %d, "
      "ranks %d, %s, stored %s, master %s, %s, %s%s, %d buffers%s%s",
      stage, zero::Name(optimizer), zero::Name(parameters), gradients ? "offloaded" : "kept", ratio,
      micro_batches, clip, ranks, zero::Name(dtype), zero::Name(accumulation), zero::Name(master),
      zero::Name(kind), model, overflows ? ", overflow" : "", buffers,
      checked ? "" : ", overflow unchecked", weighted ? ", weighted" : "");
}

std::vector<OffloadCell> MakeOffloadCells(int strength) {
  const std::vector<std::string> models = ModelNames();
  const Place places[][2] = {{Place::kHost, Place::kDevice}, {Place::kNvme, Place::kDevice},
                             {Place::kHost, Place::kHost},   {Place::kNvme, Place::kNvme},
                             {Place::kHost, Place::kNvme},   {Place::kNvme, Place::kHost}};
  const MasterKind masters[] = {MasterKind::kF32, MasterKind::kSplit, MasterKind::kNone};
  const OptimizerKind kinds[] = {OptimizerKind::kAdamW, OptimizerKind::kSgd, OptimizerKind::kLion};
  const DType dtypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  std::vector<OffloadCell> cells;
  for (const std::vector<int>& factor :
       CoveringArray({3, 6, 2, 2, 2, 3, 3, 3, 2, 3, 3, static_cast<int>(models.size()), 2, 2, 2, 2},
                     strength)) {
    OffloadCell cell;
    cell.stage = 1 + factor[0];
    cell.optimizer = places[factor[1]][0];
    cell.parameters = cell.stage == 3 ? places[factor[1]][1] : Place::kDevice;
    cell.gradients = factor[2] == 0;
    cell.ratio = factor[3] == 0 ? 1 : 0.3;
    cell.micro_batches = factor[4] == 0 ? 1 : 4;
    cell.clip = factor[5];
    cell.ranks = 1 + factor[6];
    cell.dtype = dtypes[factor[7]];
    cell.accumulation = factor[8] == 0 ? DType::kF32 : DType::kBF16;
    cell.master = cell.dtype == DType::kBF16 ? masters[factor[9]] : MasterKind::kF32;
    cell.kind = kinds[factor[10]];
    cell.model = models[factor[11]];
    cell.overflows = factor[12] == 1;
    cell.buffers = factor[13] == 0 ? 2 : 5;
    cell.checked = factor[14] == 0;
    cell.weighted = factor[15] == 1;
    cells.push_back(cell);
  }
  return cells;
}

ToyRun MakeRun(const OffloadCell& cell, const std::string& folder) {
  ToyRun run;
  run.model = MakeModel(cell.model, cell.dtype);
  run.ranks = cell.ranks;
  run.micro_batches = cell.micro_batches;
  run.evaluate_between = cell.stage == 3;
  Config& config = run.config;
  config.stage = cell.stage;
  config.accumulation = cell.accumulation;
  config.master = cell.master;
  if (cell.master == MasterKind::kSplit) config.weight_rounding = WeightRounding::kNearestAway;
  config.optimizer = cell.kind;
  config.learning_rate = 0.01;
  if (cell.kind == OptimizerKind::kSgd) config.momentum = 0.9;
  config.groups = {{1, 0.1}, {0.5, 0}};
  config.clip_norm = cell.clip == 0 ? 0 : cell.clip == 1 ? 1e9 : 0.01;
  config.check_overflow = cell.checked;
  if (cell.weighted) {
    run.loss_weight = [](int rank, int step) { return 3.0 + rank + 2 * step; };
    run.weight_with_pass = true;
  }
  config.poison_slots = true;
  if (cell.model == "odd") {
    run.unwritten_unit = 1;
    run.unwritten_parameter = 1;
    run.passed_over_unit = 3;
  }
  if (cell.overflows) {
    run.overflow_step = 1;
    run.overflow_rank = cell.ranks - 1;
    run.overflow_unit = cell.model == "odd" ? 2 : 1;
  }
  if (folder.empty()) return run;
  config.offload.optimizer = cell.optimizer;
  config.offload.parameters = cell.parameters;
  config.offload.gradients = cell.gradients;
  config.offload.ratio = cell.ratio;
  config.offload.nvme_path = folder;
  config.offload.piece_elements = 2048;
  config.offload.buffer_count = cell.buffers;
  return run;
}

void CheckOffloadCell(const OffloadCell& cell, const Backend& backend) {
  INFO(cell.Name());
  const Outcome kept = RunToy(MakeRun(cell, ""));
  CHECK_OK(kept.status);
  const TemporaryFolder folder;
  ToyRun run = MakeRun(cell, folder.path());
  run.backend = backend;
  const Outcome offloaded = RunToy(run);
  CHECK_OK(offloaded.status);
  CHECK(offloaded.live_bytes_left == 0);
  CHECK(folder.Names().empty());
  if (!kept.status.ok() || !offloaded.status.ok()) return;
  CHECK(FirstDifference(kept, offloaded) == "");
  CHECK(!offloaded.weights.empty());
  for (size_t i = 0; i < kept.steps.size(); ++i) {
    CHECK(kept.steps[i].applied == !(cell.checked && cell.overflows && i == 1));
    if (cell.checked || i < 2) {
      CHECK((kept.steps[i].non_finite > 0) == (cell.overflows && i == 1));
    }
    CHECK(kept.steps[i].non_finite == offloaded.steps[i].non_finite);
    CHECK(kept.steps[i].loss_weight == offloaded.steps[i].loss_weight);
    CHECK(kept.steps[i].first_non_finite == offloaded.steps[i].first_non_finite);
  }
  CheckPlanned(offloaded, cell.micro_batches);
}

}  // namespace zero::test
