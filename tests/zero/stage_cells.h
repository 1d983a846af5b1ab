// Cells of the stage matrix: everything that could make a difference, and what must hold in each.
#pragma once

#include <string>
#include <vector>

#include "tests/zero/toy_trainer.h"

namespace zero::test {

struct Cell {
  int ranks;
  int micro_batches;
  DType dtype;
  DType accumulation;
  int bucket;  // 0: small, 1: one unit, 2: larger than the model
  int prefetch;
  std::string model;
  bool adamw;
  double clip;
  bool evaluate;

  std::string Name() const;
};

// Every combination of any `strength` factors occurs in a cell.
std::vector<Cell> MakeCells(int strength);

ToyRun MakeRun(const Cell& cell, int stage, bool exact);

// Runs it, and checks that every step was applied, and that bytes in memory and on the wire are
// those of the plan.
Outcome CheckedRun(const Cell& cell, int stage, bool exact, const Backend& backend = HostBackend());

// Bytes in memory and on the wire are those of the plan, and no step allocates.
void CheckPlanned(const Outcome& outcome, int micro_batches);

// All stages: the same bits where they are promised.
void CheckCell(const Cell& cell);

}  // namespace zero::test
