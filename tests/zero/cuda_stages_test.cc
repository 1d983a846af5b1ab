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
