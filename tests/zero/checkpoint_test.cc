// A run that is saved and goes on from the checkpoint is the run that was never interrupted.
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/covering.h"
#include "tests/zero/in_process.h"
#include "tests/zero/toy_trainer.h"
#include "zero/save/checkpoint_folder.h"
#include "zero/save/checkpoint_reader.h"

namespace zero::test {
namespace {

constexpr int kSavedAt = 3;
constexpr int kSteps = 6;

// What makes a difference to a checkpoint.
struct Resume {
  int ranks_before, ranks_after;
  int stage_before, stage_after;
  DType dtype;
  int micro_batches;
  OptimizerKind optimizer;
  MasterKind master;
  std::string model;
  bool asynchronous;
  bool fresh_bucket;
  Place place_before, place_after;  // of states, and in stage 3 of weights
  std::string disk = {};            // a folder for what is offloaded to one

  std::string Name() const {
    return absl::StrCat("ranks ", ranks_before, " -> ", ranks_after, ", stage ", stage_before,
                        " -> ", stage_after, ", ", zero::Name(dtype), ", ", micro_batches,
                        " micro-batches, ", zero::Name(optimizer), ", masters ", zero::Name(master),
                        ", ", model, asynchronous ? ", asynchronous" : ", synchronous",
                        fresh_bucket ? ", other buckets" : "", ", on ", zero::Name(place_before),
                        " -> ", zero::Name(place_after));
  }
};

ToyRun RunOf(const Resume& cell, bool after) {
  ToyRun run;
  run.model = MakeModel(cell.model, cell.dtype);
  run.ranks = after ? cell.ranks_after : cell.ranks_before;
  run.micro_batches = cell.micro_batches;
  run.steps = kSteps;
  // Sums that do not depend on how many ranks there are would need the same gradients: a run that
  // goes on with other ranks is compared with its own state only.
  run.config.stage = after ? cell.stage_after : cell.stage_before;
  run.config.optimizer = cell.optimizer;
  run.config.master = cell.master;
  const Place place = after ? cell.place_after : cell.place_before;
  if (run.config.stage >= 1) run.config.offload.optimizer = place;
  if (run.config.stage == 3) run.config.offload.parameters = place;
  run.config.offload.ratio = after ? 0.6 : 1;
  run.config.offload.nvme_path = cell.disk;
  run.config.offload.piece_elements = 2048;
  run.config.offload.buffer_count = 2;
  if (cell.master == MasterKind::kSplit) {
    run.config.weight_rounding = WeightRounding::kNearestAway;
  }
  run.config.rounding_seed = 11;
  if (cell.optimizer == OptimizerKind::kSgd) run.config.momentum = 0.9;
  run.config.schedule = [](int64_t count) { return 1e-3 * static_cast<double>(count); };
  run.config.groups = {{1, 0.1}, {0.5, 0}};
  run.config.clip_norm = 0.5;
  run.config.reduce_bucket_size = after && cell.fresh_bucket ? 1 : int64_t{1} << 40;
  run.config.checkpoint_memory = cell.asynchronous ? 1 << 20 : 0;
  run.config.poison_slots = true;
  run.scaled = true;
  run.config.loss_scale.kind = LossScaling::kDynamic;
  run.config.loss_scale.scale = 1024;
  run.config.loss_scale.window = 2;
  run.config.loss_scale.hysteresis = 2;
  // The last step before the checkpoint leaves the hysteresis half used.
  run.overflow_step = kSavedAt - 1;
  run.overflow_rank = run.ranks - 1;
  // And what is left of it is used up soon afterwards.
  run.spoil = [](int rank, int step, std::vector<float>& gradient) {
    if (rank == 0 && step == kSavedAt + 1 && !gradient.empty()) {
      gradient[0] = std::numeric_limits<float>::infinity();
    }
  };
  return run;
}

// The uninterrupted run, which leaves a checkpoint of after kSavedAt steps in `folder`.
Outcome SavingRun(ToyRun run, const std::string& folder) {
  run.between = [folder](ShardedOptimizer& optimizer, int rank, int step) -> absl::Status {
    if (step == kSteps) return optimizer.FinishCheckpoint();
    if (step != kSavedAt) return absl::OkStatus();
    CheckpointOptions options;
    options.attributes = {{"position", "17"}, {"rank", absl::StrCat(rank)}};
    return optimizer.SaveCheckpoint(folder, options).status();
  };
  return RunToy(run);
}

// Goes on from the checkpoint; with no more than that, the state is the one that was saved.
Outcome ResumedRun(ToyRun run, const std::string& folder, int steps = kSteps) {
  run.first_step = kSavedAt;
  run.steps = steps;
  run.start = [folder](ShardedOptimizer& optimizer, int) -> absl::Status {
    ZERO_ASSIGN_OR_RETURN(const FoundCheckpoint latest, LatestCheckpoint(folder));
    ZERO_ASSIGN_OR_RETURN(const CheckpointLoaded loaded, optimizer.LoadCheckpoint(latest.path));
    if (loaded.step == kSavedAt && loaded.applied_steps == kSavedAt - 1 &&
        loaded.attributes == Attributes{{"position", "17"}, {"rank", "0"}}) {
      return absl::OkStatus();
    }
    return absl::InternalError("loaded another step, or other attributes");
  };
  return RunToy(run);
}

// What `body` returned in a process of its own, or how that ended.
std::string SaidIn(const std::function<std::string()>& body) {
  const ProcessEnd end = InProcess(body);
  const bool ended = !end.killed && end.status == (end.said.empty() ? 0 : 1);
  return ended ? end.said : absl::StrCat("the process ended otherwise; ", end.said);
}

std::string StepDifference(const std::vector<StepResult>& whole,
                           const std::vector<StepResult>& tail) {
  const size_t skipped = whole.size() - tail.size();
  for (size_t i = 0; i < tail.size(); ++i) {
    const StepResult& a = whole[skipped + i];
    const StepResult& b = tail[i];
    if (a.step == b.step && a.applied_steps == b.applied_steps && a.applied == b.applied &&
        a.gradient_norm == b.gradient_norm && a.learning_rate == b.learning_rate &&
        a.loss_scale == b.loss_scale && a.next_loss_scale == b.next_loss_scale &&
        a.skipped_steps == b.skipped_steps) {
      continue;
    }
    return absl::StrCat("step ", a.step, " and ", b.step, ": norm ", a.gradient_norm, " and ",
                        b.gradient_norm, ", scale ", a.loss_scale, " and ", b.loss_scale,
                        ", applied ", a.applied_steps, " and ", b.applied_steps);
  }
  return "";
}

std::string StateDifference(Outcome a, Outcome b) {
  a.steps.clear();
  b.steps.clear();
  return FirstDifference(a, b);
}

void CheckResume(Resume cell) {
  INFO(cell.Name());
  const TemporaryFolder folder;
  const TemporaryFolder disk;
  cell.disk = disk.path();
  // Each run in a process of its own: nothing but the folder is handed over.
  const bool same = cell.ranks_before == cell.ranks_after && cell.stage_before == cell.stage_after;
  const std::string said = SaidIn([&]() -> std::string {
    const Outcome whole = SavingRun(RunOf(cell, false), folder.path());
    if (!whole.status.ok()) return whole.status.ToString();
    if (same) {
      const std::string resumed = SaidIn([&]() -> std::string {
        const Outcome tail = ResumedRun(RunOf(cell, true), folder.path());
        if (!tail.status.ok()) return tail.status.ToString();
        const std::string steps = StepDifference(whole.steps, tail.steps);
        return steps.empty() ? StateDifference(whole, tail) : steps;
      });
      if (!resumed.empty()) return absl::StrCat("resumed: ", resumed);
    }
    return "";
  });
  CHECK(said == "");
  // The state itself, whatever the ranks and the stage.
  const std::string state = SaidIn([&]() -> std::string {
    ToyRun before = RunOf(cell, false);
    before.steps = kSavedAt;
    const Outcome saved = RunToy(before);
    const Outcome loaded = ResumedRun(RunOf(cell, true), folder.path(), kSavedAt);
    if (!saved.status.ok()) return saved.status.ToString();
    if (!loaded.status.ok()) return loaded.status.ToString();
    return StateDifference(saved, loaded);
  });
  CHECK(state == "");
  const auto found = FindCheckpoints(folder.path());
  REQUIRE_OK(found.status());
  REQUIRE(found->size() == 1);
  CHECK(folder.Names() == std::vector<std::string>{"step-00000003"});
  CHECK(disk.Names().empty());
  auto reader = CheckpointReader::Open((*found)[0].path);
  REQUIRE_OK(reader.status());
  CHECK_OK(reader->Verify(nullptr));
}

std::vector<Resume> Cells(int strength) {
  const std::vector<int> ranks = {1, 2, 3, 4, 8};
  const std::vector<DType> dtypes = {DType::kF32, DType::kBF16, DType::kF16};
  const std::vector<OptimizerKind> optimizers = {OptimizerKind::kAdamW, OptimizerKind::kSgd,
                                                 OptimizerKind::kLion};
  const std::vector<MasterKind> masters = {MasterKind::kF32, MasterKind::kSplit, MasterKind::kNone};
  const std::vector<Place> places = {Place::kDevice, Place::kHost, Place::kNvme};
  const std::vector<std::string> models = ModelNames();
  std::vector<Resume> cells;
  for (const std::vector<int>& c : CoveringArray(
           {5, 6, 4, 5, 3, 2, 3, 3, static_cast<int>(models.size()), 2, 2, 3, 3}, strength)) {
    Resume cell;
    cell.ranks_before = ranks[c[0]];
    // One level more of each: as before.
    cell.ranks_after = c[1] == 5 ? cell.ranks_before : ranks[c[1]];
    cell.stage_before = c[2];
    cell.stage_after = c[3] == 4 ? cell.stage_before : c[3];
    cell.dtype = dtypes[c[4]];
    cell.micro_batches = c[5] == 0 ? 1 : 3;
    cell.optimizer = optimizers[c[6]];
    cell.master = cell.dtype == DType::kBF16 ? masters[c[7]] : MasterKind::kF32;
    cell.model = models[c[8]];
    cell.asynchronous = c[9] == 1;
    cell.fresh_bucket = c[10] == 1;
    cell.place_before = places[c[11]];
    cell.place_after = places[c[12]];
    cells.push_back(cell);
  }
  return cells;
}

}  // namespace

TEST_CASE("Checkpoint: every pair of factors resumes bit for bit", "[zero][checkpoint][matrix]") {
  const std::vector<Resume> cells = Cells(2);
  const int parts = 4;
  const int part = GENERATE(0, 1, 2, 3);
  for (size_t i = part; i < cells.size(); i += parts) CheckResume(cells[i]);
}

TEST_CASE("Checkpoint: every triple of factors resumes bit for bit",
          "[zero][checkpoint][matrix][more]") {
  for (const Resume& cell : Cells(3)) CheckResume(cell);
}

// Every stage and dtype as it was before: the whole run to its end, bit for bit.
TEST_CASE("Checkpoint: a run that goes on is the run that was not interrupted",
          "[zero][checkpoint][thread]") {
  for (int stage = 0; stage < 4; ++stage) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      Resume cell{2,
                  2,
                  stage,
                  stage,
                  dtype,
                  2,
                  OptimizerKind::kAdamW,
                  MasterKind::kF32,
                  "mixed",
                  stage % 2 == 1,
                  false,
                  dtype == DType::kF32 ? Place::kDevice : Place::kHost,
                  dtype == DType::kF16 ? Place::kNvme : Place::kHost};
      CheckResume(cell);
    }
  }
}

}  // namespace zero::test
