#include "tests/zero/stage_cells.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/catch.h"
#include "tests/zero/covering.h"

namespace zero::test {

std::string Cell::Name() const {
  return absl::StrFormat(
      "ranks %d, micro-batches %d, %s, stored %s, bucket %d, prefetch %d, %s, %s, clip %g%s", ranks,
      micro_batches, zero::Name(dtype), zero::Name(accumulation), bucket, prefetch, model,
      adamw ? "AdamW" : "SGD", clip, evaluate ? ", evaluations" : "");
}

std::vector<Cell> MakeCells(int strength) {
  const std::vector<int> ranks = {1, 2, 3, 4, 8};
  const std::vector<std::string> models = ModelNames();
  std::vector<Cell> cells;
  for (const std::vector<int>& cell :
       CoveringArray({5, 2, 2, 2, 3, 3, static_cast<int>(models.size()), 2, 3, 2}, strength)) {
    cells.push_back(
        {ranks[cell[0]], cell[1] == 0 ? 1 : 3, cell[2] == 0 ? DType::kF32 : DType::kBF16,
         cell[3] == 0 ? DType::kF32 : DType::kBF16, cell[4], cell[5], models[cell[6]], cell[7] == 0,
         cell[8] == 0   ? 0
         : cell[8] == 1 ? 0.5
                        : 1e9,
         cell[9] == 1});
  }
  return cells;
}

ToyRun MakeRun(const Cell& cell, int stage, bool exact) {
  ToyRun run;
  run.model = MakeModel(cell.model, cell.dtype);
  run.ranks = cell.ranks;
  run.micro_batches = cell.micro_batches;
  run.exact_gradients = exact;
  run.evaluate_between = cell.evaluate;
  run.config.stage = stage;
  run.config.accumulation = cell.accumulation;
  const int64_t buckets[] = {1, 20 * 1024, int64_t{1} << 40};
  run.config.reduce_bucket_size = buckets[cell.bucket];
  run.config.prefetch = cell.prefetch;
  run.config.groups = {{1, 0.1}, {0.5, 0}};
  run.config.clip_norm = cell.clip;
  run.config.poison_slots = true;
  if (!cell.adamw) {
    run.config.optimizer = OptimizerKind::kSgd;
    run.config.momentum = 0.9;
    run.config.learning_rate = 0.01;
  }
  if (cell.model == "odd") {
    run.unwritten_unit = 1;
    run.unwritten_parameter = 1;
    run.passed_over_unit = 3;
  }
  return run;
}

namespace {

void CheckMemory(const Outcome& outcome) {
  for (int i = 0; i < kMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    if (category == MemoryCategory::kActivations) continue;  // the trainer's own
    INFO(Name(category));
    CHECK(outcome.memory[i].peak == outcome.plan.bytes[i]);
    CHECK(outcome.memory[i].current == outcome.plan.bytes[i]);
  }
}

void CheckWire(const Outcome& outcome, int micro_batches) {
  const WireBytes wire = outcome.plan.step_wire(micro_batches);
  for (size_t step = 1; step < outcome.traffic.size(); ++step) {
    for (const char* name : {kReduceGradients, kGatherGradients, kGatherWeights, kControl}) {
      const auto bytes = [&](const TrafficTable& table) {
        const auto found = table.find(name);
        return found == table.end() ? 0 : found->second.bytes;
      };
      const auto planned = wire.find(name);
      INFO("step " << step << ", " << name);
      CHECK(bytes(outcome.traffic[step]) - bytes(outcome.traffic[step - 1]) ==
            (planned == wire.end() ? 0 : planned->second));
    }
  }
}

}  // namespace

void CheckPlanned(const Outcome& outcome, int micro_batches) {
  CheckMemory(outcome);
  CheckWire(outcome, micro_batches);
  CHECK(outcome.allocations.front() == outcome.allocations.back());
}

Outcome CheckedRun(const Cell& cell, int stage, bool exact, const Backend& backend) {
  ToyRun run = MakeRun(cell, stage, exact);
  run.backend = backend;
  const Outcome outcome = RunToy(run);
  INFO("stage " << stage << ", " << backend.name);
  CHECK_OK(outcome.status);
  CHECK(outcome.live_bytes_left == 0);
  if (!outcome.status.ok()) return outcome;
  for (const StepResult& step : outcome.steps) {
    CHECK(step.applied);
    CHECK(step.first_non_finite == "");
    CHECK(std::isfinite(step.gradient_norm));
    CHECK(step.gradient_norm > 0);
  }
  CHECK(outcome.steps.size() == 3);
  CHECK(!outcome.weights.empty());
  CheckPlanned(outcome, cell.micro_batches);
  return outcome;
}

void CheckCell(const Cell& cell) {
  INFO(cell.Name());
  for (const bool exact : {false, true}) {
    std::vector<Outcome> stages;
    for (int stage = 0; stage < 4; ++stage) stages.push_back(CheckedRun(cell, stage, exact));
    CHECK(FirstDifference(stages[0], stages[1]) == "");
    CHECK(FirstDifference(stages[2], stages[3]) == "");
    // Rounding to a 16-bit store between passes is not exact.
    const bool partial_sums_exact =
        exact && (cell.accumulation == DType::kF32 || cell.dtype == DType::kF32);
    if (cell.micro_batches == 1 || partial_sums_exact) {
      CHECK(FirstDifference(stages[0], stages[2]) == "");
    }
  }
}

}  // namespace zero::test
