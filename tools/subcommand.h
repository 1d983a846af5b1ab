// A subcommand of zero-checkpoint: one file each, listed in zero_checkpoint.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/support/flags.h"

namespace zero::tools {

// What a subcommand is told: one path, then flags.
class Subcommand {
 public:
  virtual ~Subcommand() = default;
  virtual void AddFlags(support::FlagTable& flags) = 0;
  // What one flag's range cannot say; the user's mistake, exit status 2.
  virtual absl::Status Check() = 0;
  // Prints to stdout.
  virtual absl::Status Run(const std::string& path) = 0;
  // Whether Run has printed the JSON of its error itself.
  virtual bool printed() const { return false; }
};

}  // namespace zero::tools
