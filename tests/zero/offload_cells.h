// Cells of the matrix of what is offloaded, and what must hold in each.
#pragma once

#include <string>
#include <vector>

#include "tests/zero/toy_trainer.h"

namespace zero::test {

struct OffloadCell {
  int stage = 3;
  Place optimizer = Place::kHost;
  Place parameters = Place::kDevice;
  bool gradients = true;
  double ratio = 1;
  int micro_batches = 1;
  int clip = 0;  // 0: off, 1: never active, 2: always active
  int ranks = 1;
  DType dtype = DType::kBF16;
  DType accumulation = DType::kF32;
  MasterKind master = MasterKind::kF32;
  OptimizerKind kind = OptimizerKind::kAdamW;
  std::string model = "odd";
  bool overflows = false;  // in the second step, on the last rank
  int buffers = 2;
  bool checked = true;  // Config::check_overflow; with it off and no clipping units step early
  bool weighted = false;

  std::string Name() const;
};

// Every combination of any `strength` factors occurs in a cell; what a stage or dtype does not have
// is replaced by what it has.
std::vector<OffloadCell> MakeOffloadCells(int strength);

// `folder`: on the disk. Empty: nothing is offloaded.
ToyRun MakeRun(const OffloadCell& cell, const std::string& folder);

// Runs it offloaded and not, and compares bits and planned bytes; the folder is empty again.
void CheckOffloadCell(const OffloadCell& cell, const Backend& backend = HostBackend());

}  // namespace zero::test
