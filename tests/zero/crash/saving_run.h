// A short run that saves twice, and what a restart must find whenever it is interrupted.
#pragma once

#include <functional>
#include <string>

#include "tests/io/gated_files.h"
#include "tests/zero/in_process.h"
#include "tests/zero/toy_trainer.h"

namespace zero::test {

inline constexpr int kFirstSave = 2;   // steps before it; nothing goes wrong there
inline constexpr int kSecondSave = 4;  // here it may
inline constexpr int kLastStep = 6;

struct SavingRun {
  int ranks = 2;
  int stage = 3;
  bool asynchronous = false;
  std::string model = "mixed";

  std::string Name() const;
  ToyRun Toy() const;
  // The run in `folder`: saves after kFirstSave steps, then calls `before_second` on every rank and
  // saves again; one more step later it has to be complete, rank 0 keeps the last one only and
  // `after_second` is called.
  Outcome Run(const std::string& folder, const std::function<void(int rank)>& before_second,
              const std::function<void(int rank)>& after_second = nullptr,
              const Backend& backend = HostBackend()) const;
};

// Ends the process, and all its ranks, at the `n`-th call that changes a file; 0: never.
GatedFiles::Gate KillAt(int64_t n);

// What a restart in `folder` must find: cleans up, goes on from the latest checkpoint to the end,
// and compares with `whole`, the run that nothing happened to. Empty, or what is wrong.
std::string Restart(const SavingRun& run, const std::string& folder, const Outcome& whole,
                    int64_t* found_step = nullptr);

}  // namespace zero::test
