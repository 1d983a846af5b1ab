#include "tests/zero/crash/saving_run.h"

#include <signal.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/folder.h"
#include "zero/save/checkpoint_folder.h"
#include "zero/save/checkpoint_reader.h"

namespace zero::test {

GatedFiles::Gate KillAt(int64_t n) {
  return [n](const FileCall& call) {
    if (n > 0 && call.number == n) raise(SIGKILL);
    return GatedFiles::kGoes;
  };
}

std::string SavingRun::Name() const {
  return absl::StrCat(ranks, " ranks, stage ", stage, asynchronous ? ", asynchronous" : "", ", ",
                      model);
}

ToyRun SavingRun::Toy() const {
  ToyRun run;
  run.model = MakeModel(model, DType::kBF16);
  run.ranks = ranks;
  run.steps = kLastStep;
  run.config.stage = stage;
  run.config.groups = {{1, 0.1}, {0.5, 0}};
  run.config.checkpoint_memory = asynchronous ? 1 << 20 : 0;
  return run;
}

Outcome SavingRun::Run(const std::string& folder,
                       const std::function<void(int rank)>& before_second,
                       const std::function<void(int rank)>& after_second,
                       const Backend& backend) const {
  ToyRun run = Toy();
  run.backend = backend;
  run.between = [&](ShardedOptimizer& optimizer, int rank, int step) -> absl::Status {
    if (step == kFirstSave) {
      ZERO_RETURN_IF_ERROR(optimizer.SaveCheckpoint(folder).status());
      return optimizer.FinishCheckpoint();
    }
    if (step == kSecondSave) {
      if (before_second) before_second(rank);
      return optimizer.SaveCheckpoint(folder).status();
    }
    if (step == kSecondSave + 1) {
      ZERO_RETURN_IF_ERROR(optimizer.FinishCheckpoint());
      if (rank == 0) ZERO_RETURN_IF_ERROR(PruneCheckpoints(folder, kSecondSave, 1, 0).status());
      if (after_second) after_second(rank);
    }
    return absl::OkStatus();
  };
  return RunToy(run);
}

std::string Restart(const SavingRun& run, const std::string& folder, const Outcome& whole,
                    int64_t* found_step) {
  const absl::Status cleaned = CleanCheckpoints(folder);
  if (!cleaned.ok()) return absl::StrCat("cleaning: ", cleaned.ToString());
  const auto names = ListFolder(folder);
  if (!names.ok()) return names.status().ToString();
  for (const std::string& name : *names) {
    if (!absl::StartsWith(name, "step-")) return absl::StrCat("left over: ", name);
  }
  const auto latest = LatestCheckpoint(folder);
  if (!latest.ok()) return latest.status().ToString();
  if (found_step != nullptr) *found_step = latest->step;
  auto reader = CheckpointReader::Open(latest->path);
  if (!reader.ok()) return reader.status().ToString();
  const absl::Status sound = reader->Verify(nullptr);
  if (!sound.ok()) return sound.ToString();

  ToyRun resumed = run.Toy();
  resumed.first_step = static_cast<int>(latest->step);
  resumed.start = [&](ShardedOptimizer& optimizer, int) {
    return optimizer.LoadCheckpoint(latest->path).status();
  };
  Outcome outcome = RunToy(resumed);
  if (!outcome.status.ok()) return absl::StrCat("going on: ", outcome.status.ToString());
  Outcome expected = whole;
  expected.steps.clear();
  outcome.steps.clear();
  return FirstDifference(expected, outcome);
}

}  // namespace zero::test
