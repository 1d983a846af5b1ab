// The stage matrix on the first GPU of this machine: ranks that share it, and NCCL where there is
// one rank. On a GPU of its own each, NCCL needs machines with more of them.
#include "tests/catch.h"
#include "tests/zero/cuda_backends.h"
#include "tests/zero/stage_cells.h"

namespace zero::test {
namespace {

void CheckCells(const Backend& backend, const std::vector<int>& ranks) {
  size_t next = 0;
  for (Cell cell : MakeCells(2)) {
    cell.ranks = ranks[next++ % ranks.size()];
    INFO(cell.Name());
    for (int stage = 0; stage < 4; ++stage) {
      INFO("stage " << stage << " on " << backend.name);
      const Outcome host = CheckedRun(cell, stage, /*exact=*/false);
      const Outcome gpu = CheckedRun(cell, stage, /*exact=*/false, backend);
      CHECK(FirstDifference(host, gpu) == "");
    }
  }
}

}  // namespace

TEST_CASE("Stages on a GPU: every pair of factors gives the host's bits", "[zero][cuda]") {
  CheckCells(LocalCudaBackend(), {1, 2, 4});
}

TEST_CASE("Stages on a GPU: over NCCL one rank gives the host's bits", "[zero][nccl]") {
  CheckCells(NcclBackend(), {1});
}

}  // namespace zero::test
