#include "examples/support/program.h"

#include <algorithm>
#include <cctype>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace zero::support {

int Fail(const std::string& program, const absl::Status& status, int exit_status) {
  std::string line = absl::StrCat(program, ": ", status.message());
  // A path or a parser's message may hold line breaks.
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  std::cout.flush();
  std::cerr << line << std::endl;
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
