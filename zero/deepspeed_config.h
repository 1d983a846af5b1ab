// DeepSpeed's configuration file, for those who have one. docs/configuration.md lists every key:
// what becomes of it, its default, and where that differs from DeepSpeed's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "device/dtype.h"
#include "zero/config.h"

namespace zero {

// A value that the caller has from elsewhere for one key of the file, and where from.
struct CallerValue {
  std::string name;  // for messages: "--micro_batch"
  std::variant<bool, int64_t, double, std::string> value;
};

// What a file is read against.
struct ConfigContext {
  int64_t world_size = 1;              // at least 1
  std::string world_size_source;       // for messages: "--ranks", "WORLD_SIZE"
  std::optional<int64_t> hidden_size;  // of the model; "auto" bucket sizes are functions of it
  std::optional<int64_t>
      total_steps;  // of the run; a schedule without an end of its own ends there
  // By the path of the key, "optimizer.params.lr" say, and of its type: counts int64_t, numbers
  // double. "auto" takes the value, so does a key that is left out, and a file that says another
  // one is refused, as is a value that the file may not have. "scheduler.type" may be a schedule
  // of the caller's own: then config.schedule is left empty for it. Besides: "optimizer", one of
  // "adamw", "adam" (decay added to the gradient), "sgd" and "lion"; "optimizer.params.beta1" and
  // "optimizer.params.beta2"; "dtype", one of "fp32", "fp16" and "bf16"; "master", one of "fp32",
  // "split" and "none"; "prefetch", units, which are 0 exactly if the file's bucket is;
  // "nvme_path", the folder of whatever is offloaded to a disk.
  std::map<std::string, CallerValue> given;
};

struct DeepSpeedConfig {
  Config config;                   // with one parameter group, which has the file's weight decay
  DType dtype = DType::kF32;       // of working weights
  int64_t train_batch_size = 0;    // samples of a step, over all ranks
  int64_t micro_batch_size = 0;    // samples of a rank in one pass
  int64_t accumulation_steps = 0;  // passes of a step
  int64_t steps_per_print = 0;
  std::string scheduler;  // scheduler.type; empty: none, or the caller's own; no config.schedule
  // One line for each key that is ignored, or taken otherwise than it is written, and why.
  std::vector<std::string> notes;
  // The values in force as JSON of several lines, defaults and what "auto" became included.
  std::string resolved;
  std::map<std::string, std::string> values;  // the same, by the paths of their keys
};

// Reads the text of a configuration. Numbers may be in quotes. Each problem of the text is one line
// of a single kInvalidArgument that begins with `name` and has line and column, the path of the
// key, its value and what would be right.
absl::StatusOr<DeepSpeedConfig> ParseDeepSpeedConfig(const std::string& text,
                                                     const ConfigContext& context,
                                                     const std::string& name = "configuration");

// The same for a file. Besides, kInvalidArgument says of a path that there is no such file, that it
// is a folder, or a pipe or a device, that it is empty, or that it cannot be read.
absl::StatusOr<DeepSpeedConfig> ReadDeepSpeedConfig(const std::string& path,
                                                    const ConfigContext& context);

}  // namespace zero
