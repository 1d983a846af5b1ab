// What is offloaded from CUDA devices, which run on stand-ins here, is updated by the host's kernels
// and gives the host's bits.
#include "tests/catch.h"
#include "tests/zero/cuda_backends.h"
#include "tests/zero/offload_cells.h"

namespace zero::test {
namespace {

// Part `part` of `parts` of the pairs.
void CheckCells(const Backend& backend, size_t part, size_t parts) {
  const std::vector<OffloadCell> cells = MakeOffloadCells(2);
  for (size_t i = part; i < cells.size(); i += parts) CheckOffloadCell(cells[i], backend);
}

}  // namespace

TEST_CASE("Offload on CUDA: every pair of factors gives the bits of the host over NCCL",
          "[zero][cuda][matrix]") {
  CheckCells(NcclBackend(), GENERATE(0, 1, 2, 3), 4);
}

TEST_CASE("Offload on CUDA: every pair of factors gives the bits of the host on one GPU",
          "[zero][cuda][matrix]") {
  CheckCells(LocalCudaBackend(), GENERATE(0, 1, 2, 3), 4);
}

TEST_CASE("Offload on CUDA: a small matrix has no data race", "[zero][cuda][thread]") {
  OffloadCell cell;
  cell.ranks = 2;
  cell.micro_batches = 2;
  cell.model = "large";
  CheckOffloadCell(cell, NcclBackend());
  cell.optimizer = Place::kNvme;
  cell.parameters = Place::kNvme;
  cell.ratio = 0.3;
  CheckOffloadCell(cell, LocalCudaBackend());
}

}  // namespace zero::test
