// What a person sees while a model trains.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "examples/train/rank_trainer.h"

namespace zero::train {

// On a terminal one line that is drawn again and again; elsewhere a line every few steps, and for
// the first and the last. Writes to stdout.
class Progress {
 public:
  Progress(int64_t steps, int64_t log_every, bool terminal);

  void Show(const StepReport& report);
  // Ends the line that is being redrawn.
  void Finish();
  // Mean loss, tokens and seconds so far, one line; nothing where no step was shown. A second one
  // where something is offloaded: where the time of a step went, on average, on rank 0.
  void Summary() const;

 private:
  std::string Line(const StepReport& report) const;

  const int64_t steps_;
  const int64_t log_every_;
  const bool terminal_;
  bool drawn_ = false;
  size_t width_ = 0;           // of the line that is on the terminal
  std::deque<double> losses_;  // of the last steps
  std::deque<double> recent_;  // seconds of the last steps
  int64_t shown_ = 0;
  int64_t tokens_ = 0;
  int64_t skipped_ = 0;
  double seconds_ = 0;
  OffloadReport offload_;
};

}  // namespace zero::train
