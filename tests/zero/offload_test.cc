// Offloaded state gives the bits of state that is not, wherever it lies.
#include "tests/catch.h"
#include "tests/zero/offload_cells.h"

namespace zero::test {

TEST_CASE("Offload: every pair of factors gives the bits of a run that offloads nothing",
          "[zero][matrix]") {
  const std::vector<OffloadCell> cells = MakeOffloadCells(2);
  const int part = GENERATE(0, 1, 2, 3);
  for (size_t i = static_cast<size_t>(part); i < cells.size(); i += 4) CheckOffloadCell(cells[i]);
}

TEST_CASE("Offload: every triple of factors gives the bits of a run that offloads nothing",
          "[zero][matrix][more]") {
  for (const OffloadCell& cell : MakeOffloadCells(3)) CheckOffloadCell(cell);
}

TEST_CASE("Offload: a small matrix has no data race", "[zero][thread]") {
  OffloadCell cell;
  cell.ranks = 2;
  cell.micro_batches = 2;
  cell.model = "large";
  CheckOffloadCell(cell);
  cell.optimizer = Place::kNvme;
  cell.parameters = Place::kNvme;
  cell.ratio = 0.3;
  CheckOffloadCell(cell);
  cell.stage = 1;
  cell.parameters = Place::kDevice;
  cell.master = MasterKind::kSplit;
  CheckOffloadCell(cell);
}

}  // namespace zero::test
