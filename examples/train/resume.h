// Where a run goes on, and whether it would be the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/llama/config.h"
#include "examples/llama/tokens.h"
#include "examples/train/options.h"
#include "zero/save/checkpoint.h"

namespace zero::train {

// What a checkpoint holds of the trainer: what the order of its samples follows from, the model's
// config.json, and how many samples have been taken.
Attributes RunAttributes(const Options& options, const llama::LlamaConfig& model,
                         const llama::TokenDataset& data, int64_t position);

struct RunState {
  int64_t position = 0;            // samples taken so far
  std::vector<std::string> notes;  // what differs and may
};

// What the attributes of the checkpoint `path` say about the run that these options describe.
// kInvalidArgument names those that are missing or cannot be read, and lists what must not differ.
absl::StatusOr<RunState> ReadRunState(const std::string& path, int64_t step,
                                      const Attributes& attributes, const Options& options,
                                      const llama::LlamaConfig& model,
                                      const llama::TokenDataset& data);

struct ResumePoint {
  std::string path;  // of one checkpoint; empty: the run begins anew
  int64_t step = 0;
  // Where it was found; an earlier one in it may take its place. Empty: that one was asked for.
  std::string folder;
  int64_t damaged_step = 0;        // of the newest that was passed over because it is damaged
  std::vector<std::string> notes;  // why it begins anew, or not at a later one
};

// For one process of a run, which holds --checkpoint_dir, before the others look at checkpoints:
// removes what an interrupted run has left there, and finds what --resume means. Errors name the
// flag.
absl::StatusOr<ResumePoint> PrepareCheckpoints(const Options& options,
                                               const llama::LlamaConfig& model,
                                               const llama::TokenDataset& data);

// The last complete checkpoint in `folder` that is of an earlier step than the one at `path`;
// empty: there is none, or no folder.
std::string CheckpointBefore(const std::string& path, const std::string& folder);

}  // namespace zero::train
