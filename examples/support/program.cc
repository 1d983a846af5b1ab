#include "examples/support/program.h"

#include <algorithm>
#include <cctype>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "collectives/launcher.h"

namespace zero::support {

absl::Status CheckAlone() {
  const absl::StatusOr<std::optional<Launch>> launch = ReadLaunch();
  // Variables that make no sense are nothing to this program.
  if (!launch.ok() || !launch->has_value() || (*launch)->size == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("this is one of ", (*launch)->size, " processes",
                   (*launch)->launcher.empty() ? " (WORLD_SIZE)" : " of " + (*launch)->launcher,
                   ", each of which would do the same; start it once"));
}

int Fail(const std::string& program, const absl::Status& status, int exit_status) {
  std::string line = absl::StrCat(program, ": ", status.message());
  // A path or a parser's message may hold line breaks.
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  std::cout.flush();
  // One write: lines of ranks that run together must not mix.
  std::cerr << line + '\n' << std::flush;
  return exit_status;
}

int FailLines(const std::string& program, const absl::Status& status, int exit_status) {
  const std::vector<std::string> lines = absl::StrSplit(std::string(status.message()), '\n');
  for (const std::string& line : lines) {
    Fail(program, absl::Status(status.code(), line), exit_status);
  }
  return exit_status;
}

}  // namespace zero::support
