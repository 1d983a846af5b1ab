// The stage matrix where all that a step does runs through CUDA calls, NCCL calls and CUDA kernels.
#include "tests/catch.h"
#include "tests/collectives/cuda_machine.h"
#include "tests/device/seeds.h"
#include "tests/zero/cuda_backends.h"
#include "tests/zero/stage_cells.h"

namespace zero::test {
namespace {

// Ranks 1, 2 and 4 only: a stage of 8 costs as much as all of these.
std::vector<Cell> CudaCells() {
  std::vector<Cell> cells;
  for (Cell cell : MakeCells(2)) {
    const int few[] = {1, 2, 4};
    cell.ranks = few[cell.ranks % 3];
    cells.push_back(cell);
  }
  return cells;
}

// Cells of one of `parts` parts, each on both kinds of group, in all stages.
void CheckPart(size_t part, size_t parts) {
  const std::vector<Cell> cells = CudaCells();
  for (size_t i = part; i < cells.size(); i += parts) {
    INFO(cells[i].Name());
    for (int stage = 0; stage < 4; ++stage) {
      const Outcome host = CheckedRun(cells[i], stage, /*exact=*/false);
      const Backend backend = (i + stage) % 2 == 0 ? NcclBackend() : LocalCudaBackend();
      const Outcome cuda = CheckedRun(cells[i], stage, /*exact=*/false, backend);
      INFO("stage " << stage << " on " << backend.name);
      CHECK(FirstDifference(host, cuda) == "");
    }
  }
}

}  // namespace

TEST_CASE("Stages on CUDA: every pair of factors gives the host's bits, part 1", "[zero][cuda]") {
  CheckPart(0, 3);
}
TEST_CASE("Stages on CUDA: every pair of factors gives the host's bits, part 2", "[zero][cuda]") {
  CheckPart(1, 3);
}
TEST_CASE("Stages on CUDA: every pair of factors gives the host's bits, part 3", "[zero][cuda]") {
  CheckPart(2, 3);
}

TEST_CASE("Stages on CUDA: every optimizer and kind of master gives the host's bits",
          "[zero][cuda]") {
  const auto config = [](OptimizerKind optimizer, MasterKind master) {
    Config made;
    made.optimizer = optimizer;
    made.master = master;
    if (master == MasterKind::kSplit) made.weight_rounding = WeightRounding::kNearestAway;
    made.momentum = 0.9;
    made.nesterov = true;
    made.clip_norm = 0.5;
    made.groups = {{1, 0.1}, {0.5, 0}};
    made.poison_slots = true;
    return made;
  };
  Config sent = config(OptimizerKind::kSgd, MasterKind::kF32);
  sent.communication = DType::kF16;
  sent.gradient_predivide_factor = 2;
  const Config configs[] = {config(OptimizerKind::kAdam, MasterKind::kF32),
                            config(OptimizerKind::kAdamW, MasterKind::kNone),
                            config(OptimizerKind::kLion, MasterKind::kSplit), sent};
  for (size_t c = 0; c < std::size(configs); ++c) {
    for (int stage = 0; stage < 4; ++stage) {
      ToyRun run;
      run.model = MakeModel("mixed", DType::kBF16);
      run.ranks = 2;
      run.micro_batches = 2;
      run.config = configs[c];
      run.config.stage = stage;
      const Outcome host = RunToy(run);
      REQUIRE_OK(host.status);
      run.backend = (c + stage) % 2 == 0 ? NcclBackend() : LocalCudaBackend();
      const Outcome cuda = RunToy(run);
      INFO("configuration " << c << ", stage " << stage << " on " << run.backend.name);
      REQUIRE_OK(cuda.status);
      CHECK(FirstDifference(host, cuda) == "");
      CheckPlanned(cuda, run.micro_batches);
    }
  }
}

TEST_CASE("Stages on CUDA: an overflow in fp16 skips on every rank and lowers the loss scale",
          "[zero][cuda]") {
  for (int stage = 0; stage < 4; ++stage) {
    ToyRun run;
    run.model = MakeModel("mixed", DType::kF16);
    run.ranks = 2;
    run.config.stage = stage;
    run.config.groups = {{}, {}};
    run.config.check_gradients = true;
    run.config.loss_scale.kind = LossScaling::kDynamic;
    run.config.loss_scale.scale = 8;
    run.config.loss_scale.hysteresis = 1;
    run.overflow_step = 1;
    run.overflow_rank = 1;
    run.overflow_unit = 3;
    const Outcome host = RunToy(run);
    REQUIRE_OK(host.status);
    for (const Backend& backend : {NcclBackend(), LocalCudaBackend()}) {
      INFO("stage " << stage << " on " << backend.name);
      run.backend = backend;
      const Outcome cuda = RunToy(run);
      REQUIRE_OK(cuda.status);
      CHECK(FirstDifference(host, cuda) == "");
      CHECK_FALSE(cuda.steps[1].applied);
      CHECK(cuda.steps[1].producer == 1);
      CHECK(cuda.steps[1].first_non_finite == run.model.units[3].parameters[0].name);
      CHECK(cuda.steps[2].loss_scale == 4);
      CheckPlanned(cuda, 1);
    }
  }
}

TEST_CASE("Stages on CUDA: operations that begin late change no bit", "[zero][cuda]") {
  for (const uint64_t seed : Seeds(1, 2)) {
    CAPTURE_SEED(seed);
    SetDelays(60, seed);
    for (int stage = 0; stage < 4; ++stage) {
      const Cell cell{2, 2, DType::kBF16, DType::kF32, 0, 1, "mixed", true, 0.5, false};
      const Outcome host = CheckedRun(cell, stage, /*exact=*/false);
      for (const Backend& backend : {NcclBackend(), LocalCudaBackend()}) {
        INFO("stage " << stage << " on " << backend.name);
        CHECK(FirstDifference(host, CheckedRun(cell, stage, /*exact=*/false, backend)) == "");
      }
    }
  }
  SetDelays(0, 1);
}

TEST_CASE("Stages on CUDA: NCCL's own reduction gives the same sums where they are exact",
          "[zero][cuda]") {
  const Cell cell{2, 2, DType::kF32, DType::kF32, 1, 1, "mixed", true, 0, false};
  for (int stage = 0; stage < 4; ++stage) {
    ToyRun run = MakeRun(cell, stage, /*exact=*/true);
    const Outcome ordered = RunToy(run);
    run.backend = NcclBackend();
    run.config.reduction = ReductionKind::kNative;
    const Outcome native = RunToy(run);
    INFO("stage " << stage);
    CHECK_OK(ordered.status);
    CHECK_OK(native.status);
    CHECK(FirstDifference(ordered, native) == "");
    CHECK(native.traffic == ordered.traffic);
    run.backend = HostBackend();
    CHECK(absl::IsInvalidArgument(RunToy(run).status));
  }
}

TEST_CASE("Stages on CUDA: a small matrix has no data race", "[zero][cuda][thread]") {
  for (const int ranks : {1, 2}) {
    const Cell cell{ranks, 2, DType::kBF16, DType::kF32, 0, 1, "mixed", true, 0.5, true};
    for (int stage = 0; stage < 4; ++stage) {
      (void)CheckedRun(cell, stage, /*exact=*/false, NcclBackend());
      (void)CheckedRun(cell, stage, /*exact=*/false, LocalCudaBackend());
    }
  }
}

}  // namespace zero::test
