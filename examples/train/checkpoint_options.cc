#include "examples/train/checkpoint_options.h"

#include "absl/strings/str_cat.h"

namespace zero::train {

void AddCheckpointFlags(support::FlagTable& flags, Options& options) {
  constexpr int64_t kMost = 1'000'000'000;
  flags.AddText("checkpoint_dir", &options.checkpoint_dir, "FOLDER",
                "gets a checkpoint at the end, or when a signal stops the run");
  flags.AddCount("save_every", &options.save_every, 0, kMost,
                 "steps from checkpoint to checkpoint; 0: none between");
  flags.AddNumber("save_every_minutes", &options.save_every_minutes, 0, 1e6,
                  "the same in minutes; the sooner counts");
  flags.AddCount("keep_last", &options.keep_last, 0, kMost,
                 "newest checkpoints that are kept; 0: all");
  flags.AddCount("keep_every", &options.keep_every, 0, kMost,
                 "also kept: those of steps that are a multiple of this; 0: none");
  flags.AddSize("checkpoint_memory", &options.checkpoint_memory, 0,
                "memory of a rank to save from while training goes on; 0: it waits");
  flags.AddText("resume", &options.resume, "PATH|latest",
                "checkpoint, or folder of some, to go on from; latest: in --checkpoint_dir");
}

absl::Status CheckCheckpointOptions(const Options& options) {
  const auto wrong = [](const auto&... text) {
    return absl::InvalidArgumentError(absl::StrCat(text...));
  };
  constexpr int64_t kLeast = 1 << 20;
  if (options.checkpoint_memory != 0 && options.checkpoint_memory < kLeast) {
    return wrong("--checkpoint_memory is ", support::SizeText(options.checkpoint_memory),
                 "; it must be 0 or at least ", support::SizeText(kLeast));
  }
  if (options.resume == kLatest && options.checkpoint_dir.empty()) {
    return wrong("--resume is latest, but --checkpoint_dir is missing; give it, or a path");
  }
  if (options.compare_stages && !(options.checkpoint_dir.empty() && options.resume.empty())) {
    return wrong(options.resume.empty() ? "--checkpoint_dir" : "--resume",
                 " is given with --compare_stages, which saves nothing and begins anew");
  }
  return absl::OkStatus();
}

std::string CheckpointLines(const Options& options) {
  return absl::StrCat(
      "\n--checkpoint_dir=", options.checkpoint_dir, "\n--save_every=", options.save_every,
      "\n--save_every_minutes=", options.save_every_minutes,
      "\n--checkpoint_memory=", options.checkpoint_memory, "\n--resume=", options.resume);
}

}  // namespace zero::train
