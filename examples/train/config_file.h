// DeepSpeed's configuration file as options of zero-train.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "collectives/launcher.h"
#include "examples/llama/config.h"
#include "examples/support/flags.h"
#include "examples/train/options.h"

namespace zero::train {

// Reads the file that --config names, and sets what it says in `options`. `flags` have been parsed
// into them: those that were given fill in what the file leaves out or has as "auto".
// kInvalidArgument has a line for each problem of the file and each flag that it contradicts.
absl::Status ReadConfigFile(const support::FlagTable& flags, const llama::LlamaConfig& model,
                            const std::optional<Launch>& launch, Options& options);

// The flags in force whose values no key of the file can say, as arguments.
std::string FlagsBeside(const Options& options);

// Lines of what the file became: its name, the values in force and FlagsBeside, and notes.
std::string DescribeConfigFile(const Options& options);

}  // namespace zero::train
