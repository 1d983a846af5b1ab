// The first four promises: same weights in every stage, the bytes of the plan in memory and on the
// wire, over a covering array of everything that could make a difference.
#include "tests/catch.h"
#include "tests/zero/stage_cells.h"

namespace zero::test {

TEST_CASE("Stages: every pair of factors gives the same weights and the planned bytes",
          "[zero][matrix]") {
  const std::vector<Cell> cells = MakeCells(2);
  const int parts = 4;
  const int part = GENERATE(0, 1, 2, 3);
  for (size_t i = part; i < cells.size(); i += parts) CheckCell(cells[i]);
}

TEST_CASE("Stages: every triple of factors gives the same weights and the planned bytes",
          "[zero][matrix][more]") {
  for (const Cell& cell : MakeCells(3)) CheckCell(cell);
}

// Takes tens of minutes: scripts/full_matrix.sh.
TEST_CASE("Stages: every combination of factors gives the same weights and the planned bytes",
          "[.full]") {
  for (const Cell& cell : MakeCells(10)) CheckCell(cell);
}

TEST_CASE("Stages: a small matrix has no data race", "[zero][thread]") {
  for (const int ranks : {1, 3}) {
    Cell cell{ranks, 2, DType::kBF16, DType::kF32, 0, 1, "mixed", true, 0.5, true};
    CheckCell(cell);
    cell.model = "odd";
    cell.accumulation = DType::kBF16;
    cell.bucket = 2;
    CheckCell(cell);
  }
}

}  // namespace zero::test
