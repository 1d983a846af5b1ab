#include "examples/support/program.h"

#include <algorithm>
#include <cctype>
#include <iostream>

#include "absl/strings/str_cat.h"

namespace zero::support {

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

}  // namespace zero::support
