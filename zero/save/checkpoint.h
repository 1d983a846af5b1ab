// What SaveCheckpoint and LoadCheckpoint take and give; ShardedOptimizer has the verbs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zero/save/checkpoint_manifest.h"

namespace zero {

struct CheckpointOptions {
  // The trainer's own state that a resumed run needs: where it is in its data, its seed, ... The
  // same on every rank; rank 0's are kept.
  Attributes attributes;
  // Also when a master or a frozen weight is inf or NaN.
  bool force = false;
};

struct CheckpointReport {
  std::string path;
  int64_t step = 0;                 // calls of Step that led to it
  int64_t bytes = 0;                // of this rank's file
  int64_t bytes_before_return = 0;  // written before SaveCheckpoint returned
  double seconds = 0;               // from the call until the checkpoint was complete
};

struct CheckpointLoaded {
  std::string path;
  int64_t step = 0;
  int64_t applied_steps = 0;
  int world_size = 1;  // that wrote it
  int stage = 0;
  Attributes attributes;
  // Hyper-parameters that are others now, "clip_norm: 1 in the checkpoint, 0.5 now": those of the
  // configuration count.
  std::vector<std::string> notes;
};

}  // namespace zero
