// Checkpoints of a run on CUDA go on anywhere, bit for bit.
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/cuda_backends.h"
#include "tests/zero/toy_trainer.h"
#include "zero/save/checkpoint_folder.h"

namespace zero::test {
namespace {

constexpr int kSavedAt = 2;

ToyRun Base(int stage, bool split) {
  ToyRun run;
  run.model = MakeModel("mixed", DType::kBF16);
  run.ranks = 2;
  run.steps = 4;
  run.config.stage = stage;
  run.config.groups = {{1, 0.1}, {0.5, 0}};
  if (split) {
    run.config.master = MasterKind::kSplit;
    run.config.weight_rounding = WeightRounding::kNearestAway;
  }
  return run;
}

Outcome Saved(ToyRun run, const Backend& backend, const std::string& folder, int64_t memory) {
  run.backend = backend;
  run.config.checkpoint_memory = memory;
  run.between = [=](ShardedOptimizer& optimizer, int, int step) {
    if (step == kSavedAt + 1) return optimizer.FinishCheckpoint();
    return step == kSavedAt ? optimizer.SaveCheckpoint(folder).status() : absl::OkStatus();
  };
  return RunToy(run);
}

Outcome Resumed(ToyRun run, const Backend& backend, const std::string& folder) {
  run.backend = backend;
  run.first_step = kSavedAt;
  run.start = [=](ShardedOptimizer& optimizer, int) {
    return optimizer.LoadCheckpoint(folder + "/" + CheckpointName(kSavedAt)).status();
  };
  return RunToy(run);
}

std::string Difference(Outcome a, Outcome b) {
  a.steps.clear();
  b.steps.clear();
  return FirstDifference(a, b);
}

}  // namespace

TEST_CASE("Checkpoint on CUDA: one of any back end goes on on any other bit for bit",
          "[zero][cuda][checkpoint]") {
  const std::vector<Backend> backends = {HostBackend(), LocalCudaBackend(), NcclBackend()};
  for (int stage = 0; stage < 4; ++stage) {
    const bool split = stage % 2 == 1;
    const Outcome whole = RunToy(Base(stage, split));
    REQUIRE_OK(whole.status);
    for (size_t b = 0; b < backends.size(); ++b) {
      const Backend& from = backends[b];
      const Backend& to = backends[(b + static_cast<size_t>(stage)) % backends.size()];
      INFO("stage " << stage << ", from " << from.name << " to " << to.name);
      const TemporaryFolder folder;
      const Outcome saved =
          Saved(Base(stage, split), from, folder.path(), stage < 2 ? 0 : int64_t{1} << 20);
      REQUIRE_OK(saved.status);
      CHECK(Difference(whole, saved) == "");
      const Outcome resumed = Resumed(Base(stage, split), to, folder.path());
      REQUIRE_OK(resumed.status);
      CHECK(Difference(whole, resumed) == "");
      CHECK(folder.Names() == std::vector<std::string>{CheckpointName(kSavedAt)});
    }
  }
}

}  // namespace zero::test
