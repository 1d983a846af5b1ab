// What SaveCheckpoint and LoadCheckpoint refuse, and what holds afterwards.
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/rank_fixture.h"
#include "tests/zero/toy_trainer.h"
#include "zero/save/checkpoint_folder.h"

namespace zero::test {
namespace {

float One(int, int64_t) { return 1; }

Rank NewRank(ProcessGroup* group, const Config& config = {},
             const Model& model = SimpleModel(2, 100)) {
  auto rank = Rank::Create(config, model, group);
  REQUIRE_OK(rank.status());
  return *std::move(rank);
}

constexpr char kSaved[] = "step-00000001";

// One rank with a checkpoint of its first step, kSaved, in `folder`.
Rank SavedRank(ProcessGroup* group, const std::string& folder, const Config& config = {}) {
  Rank rank = NewRank(group, config);
  REQUIRE_OK(rank.optimizer->Write(State::kMaster, InitialValues()));
  REQUIRE_OK(rank.Pass(Pass::kTrainLast, One));
  REQUIRE_OK(rank.optimizer->Step().status());
  REQUIRE_OK(rank.optimizer->SaveCheckpoint(folder).status());
  return rank;
}

absl::StatusOr<CheckpointLoaded> LoadSaved(const Rank& rank, const TemporaryFolder& folder) {
  return rank.optimizer->LoadCheckpoint(folder.File(kSaved));
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

TEST_CASE("Checkpoint: it is made and loaded between steps only", "[zero][checkpoint][errors]") {
  const TemporaryFolder folder;
  LocalWorld world(1);
  Rank rank = SavedRank(world.group(0), folder.path());
  ShardedOptimizer& optimizer = *rank.optimizer;
  REQUIRE_OK(rank.Pass(Pass::kTrain, One));
  for (const absl::Status& status :
       {optimizer.SaveCheckpoint(folder.path()).status(), LoadSaved(rank, folder).status()}) {
    CHECK(absl::IsFailedPrecondition(status));
    CHECK_THAT(MessageOf(status), ContainsSubstring("a training pass has begun"));
  }
  REQUIRE_OK(rank.Pass(Pass::kTrainLast, One));
  REQUIRE_OK(optimizer.Step().status());
  // After an evaluation is between steps.
  REQUIRE_OK(optimizer.BeginPass(Pass::kEvaluate));
  REQUIRE_OK(optimizer.AcquireWeights(0, *rank.stream).status());
  CHECK(absl::IsFailedPrecondition(optimizer.SaveCheckpoint(folder.path()).status()));
  REQUIRE_OK(optimizer.ReleaseWeights(0, *rank.stream));
  CHECK_OK(optimizer.SaveCheckpoint(folder.path()).status());
  CHECK_OK(optimizer.FinishCheckpoint());
  CHECK(FindCheckpoints(folder.path())->size() == 2);
}

TEST_CASE("Checkpoint: everything that the model has otherwise is listed and nothing changes",
          "[zero][checkpoint][errors]") {
  const TemporaryFolder folder;
  LocalWorld world(1);
  { const Rank saved = SavedRank(world.group(0), folder.path()); }
  Model model = SimpleModel(3, 100);
  model.units[0].parameters[0].shape = {10, 11};
  model.units[1].parameters[0].name = "other";
  model.units[2].parameters[0].dtype = DType::kBF16;
  const Rank rank = NewRank(world.group(0), {}, model);
  REQUIRE_OK(rank.optimizer->Write(State::kMaster, InitialValues()));
  std::vector<float> before(110), after(110);
  REQUIRE_OK(rank.optimizer->Gather(State::kWeight, "u0.w", absl::MakeSpan(before)));
  const absl::Status refused = LoadSaved(rank, folder).status();
  CHECK(absl::IsInvalidArgument(refused));
  for (const char* words : {kSaved, "'u0.w': [100] in the checkpoint, [10, 11] in the model",
                            "parameter 'other' is not in it", "parameter 'u2.w' is not in it",
                            "the model has no parameter 'u1.w'"}) {
    CHECK_THAT(MessageOf(refused), ContainsSubstring(words));
  }
  REQUIRE_OK(rank.optimizer->Gather(State::kWeight, "u0.w", absl::MakeSpan(after)));
  CHECK(before == after);
  // Another optimizer has other states.
  Config sgd;
  sgd.optimizer = OptimizerKind::kSgd;
  CHECK_THAT(MessageOf(LoadSaved(NewRank(world.group(0), sgd), folder).status()),
             ContainsSubstring("its states are those of adamw, the configuration asks for sgd"));
}

TEST_CASE("Checkpoint: hyper-parameters that are others now are noted", "[zero][checkpoint]") {
  const TemporaryFolder folder;
  LocalWorld world(1);
  Config config;
  config.clip_norm = 1;
  config.schedule = [](int64_t count) { return 1e-3 / static_cast<double>(count); };
  { const Rank saved = SavedRank(world.group(0), folder.path(), config); }
  {
    const auto loaded = LoadSaved(NewRank(world.group(0), config), folder);
    REQUIRE_OK(loaded.status());
    CHECK(loaded->notes.empty());
  }
  config.clip_norm = 0.5;
  config.schedule = nullptr;
  config.stage = 1;
  config.check_overflow = false;
  const auto loaded = LoadSaved(NewRank(world.group(0), config), folder);
  REQUIRE_OK(loaded.status());
  const std::string notes = absl::StrJoin(loaded->notes, "\n");
  CHECK_THAT(notes, ContainsSubstring("clip_norm: 1 in the checkpoint, 0.5 now"));
  CHECK_THAT(notes, ContainsSubstring("learning_rate"));
  CHECK_THAT(notes, ContainsSubstring("check_overflow: true in the checkpoint, false now"));
  CHECK_THAT(notes, !ContainsSubstring("stage"));
  CHECK(loaded->notes.size() <= 4);
}

TEST_CASE("Checkpoint: a static loss scale is that of the configuration", "[zero][checkpoint]") {
  const TemporaryFolder folder;
  LocalWorld world(1);
  Config config;
  config.loss_scale = {LossScaling::kDynamic, 4096, 1000, 2, false, 1};
  { const Rank saved = SavedRank(world.group(0), folder.path(), config); }
  const auto scale_after_load = [&](std::vector<std::string>* notes) {
    const Rank rank = NewRank(world.group(0), config);
    const auto loaded = LoadSaved(rank, folder);
    REQUIRE_OK(loaded.status());
    *notes = loaded->notes;
    return *rank.optimizer->loss_scale();
  };
  std::vector<std::string> notes;
  config.loss_scale.scale = 64;  // where it would start
  CHECK(scale_after_load(&notes) == 4096);
  CHECK(notes.empty());
  config.loss_scale.kind = LossScaling::kStatic;
  CHECK(scale_after_load(&notes) == 64);
  CHECK_THAT(absl::StrJoin(notes, "\n"),
             ContainsSubstring("loss_scale.scale: 4096 in the checkpoint, 64 now"));
}

TEST_CASE("Checkpoint: what no manifest could hold is refused before anything is written",
          "[zero][checkpoint][errors]") {
  const TemporaryFolder folder;
  LocalWorld world(1);
  Rank rank = SavedRank(world.group(0), folder.path());
  const auto refused = [&](const std::string& path, const Attributes& attributes) {
    CheckpointOptions options;
    options.attributes = attributes;
    const absl::Status status = rank.optimizer->SaveCheckpoint(path, options).status();
    CHECK(absl::IsInvalidArgument(status));
    return MessageOf(status);
  };
  CHECK_THAT(refused(folder.path(), {{"random", "\xff\x80"}}),
             ContainsSubstring("attribute 'random' is not UTF-8"));
  CHECK_THAT(refused(folder.path(), {{"all", std::string(17 << 20, 'x')}}),
             ContainsSubstring("bytes; at most 16777216"));
  CHECK_THAT(refused("", {}), ContainsSubstring("the folder is empty"));
  CHECK(folder.Names() == std::vector<std::string>{kSaved});
  CHECK_OK(rank.optimizer->SaveCheckpoint(folder.path()).status());
}

TEST_CASE("Checkpoint: the thread that drives the optimizer does not wait in Get",
          "[zero][checkpoint][errors]") {
  const TemporaryFolder folder;
  LocalWorld world(1);
  Config config;
  config.checkpoint_memory = 1 << 20;
  const Rank rank = NewRank(world.group(0), config);
  auto saved = rank.optimizer->SaveCheckpoint(folder.path());
  REQUIRE_OK(saved.status());
  const absl::Status waiting = saved->Get().status();
  CHECK(absl::IsFailedPrecondition(waiting));
  CHECK_THAT(MessageOf(waiting), ContainsSubstring("call FinishCheckpoint"));
  REQUIRE_OK(rank.optimizer->FinishCheckpoint());
  CHECK_OK(saved->Get().status());
}

TEST_CASE("Checkpoint: a damaged one leaves nothing usable until another is loaded",
          "[zero][checkpoint][errors][thread]") {
  const TemporaryFolder folder;
  ToyRun run;
  run.model = MakeModel("large", DType::kBF16);
  run.ranks = 3;
  run.steps = 2;
  run.config.stage = 3;
  run.between = [&](ShardedOptimizer& optimizer, int, int step) {
    return step == 0 ? absl::OkStatus() : optimizer.SaveCheckpoint(folder.path()).status();
  };
  const Outcome whole = RunToy(run);
  REQUIRE_OK(whole.status);
  const std::string file = folder.File("step-00000002/rank-00001-of-00003.safetensors");
  std::string bytes = ReadFile(file);
  const auto spoilt = bytes.size() - 100;
  bytes[spoilt] = static_cast<char>(bytes[spoilt] ^ 1);
  WriteFile(file, bytes);

  run.between = nullptr;
  run.first_step = run.steps;
  run.start = [&](ShardedOptimizer& optimizer, int) -> absl::Status {
    const absl::Status damaged = optimizer.LoadCheckpoint(folder.File("step-00000002")).status();
    if (!absl::IsDataLoss(damaged) ||
        !absl::StrContains(damaged.message(), "rank-00001-of-00003")) {
      return absl::InternalError(absl::StrCat("not found to be damaged: ", damaged.ToString()));
    }
    for (const absl::Status& status :
         {optimizer.BeginPass(Pass::kTrainLast), optimizer.SaveCheckpoint(folder.path()).status(),
          optimizer.Write(State::kMaster, InitialValues())}) {
      if (!absl::IsDataLoss(status)) return absl::InternalError("half loaded, and used");
    }
    return optimizer.LoadCheckpoint(folder.File(kSaved)).status();
  };
  CHECK_OK(RunToy(run).status);
}

TEST_CASE("Checkpoint: all ranks must see the folder of rank 0", "[zero][checkpoint][errors]") {
  const TemporaryFolder first, second;
  ToyRun run;
  run.model = MakeModel("odd", DType::kF32);
  run.ranks = 2;
  run.steps = 1;
  std::vector<absl::Status> told(2);
  run.between = [&](ShardedOptimizer& optimizer, int rank, int step) -> absl::Status {
    if (step == 0) return absl::OkStatus();
    told[static_cast<size_t>(rank)] =
        optimizer.SaveCheckpoint(rank == 0 ? first.path() : second.path()).status();
    return absl::OkStatus();
  };
  CHECK_OK(RunToy(run).status);
  for (const absl::Status& status : told) {
    CHECK(absl::IsNotFound(status));
    CHECK_THAT(MessageOf(status), ContainsSubstring("rank 1: "));
    CHECK_THAT(MessageOf(status), ContainsSubstring(second.path()));
    CHECK_THAT(MessageOf(status), ContainsSubstring("every rank must see the folder of rank 0"));
  }
  CHECK(first.Names().empty());
  CHECK(second.Names().empty());
}

TEST_CASE("Checkpoint: it is complete in a later Step and one of the same step replaces it",
          "[zero][checkpoint][thread]") {
  const TemporaryFolder folder;
  ToyRun run;
  run.model = MakeModel("large", DType::kBF16);
  run.ranks = 2;
  run.steps = 60;
  run.config.checkpoint_memory = 1 << 20;
  std::vector<std::optional<Pending<CheckpointReport>>> pending(2);
  run.between = [&](ShardedOptimizer& optimizer, int rank, int step) -> absl::Status {
    auto& own = pending[static_cast<size_t>(rank)];
    if (step == 2) {
      // The second of the same step finishes the first, and takes its place.
      ZERO_RETURN_IF_ERROR(optimizer.SaveCheckpoint(folder.path()).status());
      ZERO_ASSIGN_OR_RETURN(own, optimizer.SaveCheckpoint(folder.path()));
    }
    // The disk may be slow: wait for its part, then go on until the ranks have agreed.
    if (step > 2 && step < run.steps && !own->Ready()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return absl::OkStatus();
  };
  const Outcome outcome = RunToy(run);
  CHECK_OK(outcome.status);
  for (auto& own : pending) {
    REQUIRE(own.has_value());
    REQUIRE(own->Ready());
    const absl::StatusOr<CheckpointReport> report = own->Get();
    REQUIRE_OK(report.status());
    CHECK(report->path == folder.File("step-00000002"));
    CHECK(report->step == 2);
    CHECK(report->bytes > 100000);
    CHECK(report->bytes_before_return <= report->bytes);
    CHECK(report->seconds > 0);
  }
  CHECK(folder.Names() == std::vector<std::string>{"step-00000002"});
  // As much memory as was planned, and none more in a step.
  for (int c = 0; c < kMemoryCategories; ++c) {
    if (static_cast<MemoryCategory>(c) == MemoryCategory::kActivations) continue;
    INFO(Name(static_cast<MemoryCategory>(c)));
    CHECK(outcome.memory[c].peak == outcome.plan.bytes[c]);
  }
}

TEST_CASE("Checkpoint: an optimizer that ends before leaves nothing of it", "[zero][checkpoint]") {
  const TemporaryFolder folder;
  ToyRun run;
  run.model = MakeModel("odd", DType::kBF16);
  run.ranks = 3;
  run.steps = 1;
  run.config.checkpoint_memory = 1 << 20;
  std::vector<std::optional<Pending<CheckpointReport>>> pending(3);
  run.between = [&](ShardedOptimizer& optimizer, int rank, int step) -> absl::Status {
    if (step == 0) return absl::OkStatus();
    ZERO_ASSIGN_OR_RETURN(pending[static_cast<size_t>(rank)],
                          optimizer.SaveCheckpoint(folder.path()));
    return absl::OkStatus();
  };
  CHECK_OK(RunToy(run).status);
  for (auto& own : pending) {
    CHECK(absl::IsAborted(own->Get().status()));
    CHECK_THAT(MessageOf(own->Get().status()), ContainsSubstring("FinishCheckpoint"));
  }
  CHECK(folder.Names().empty());
}

}  // namespace zero::test
