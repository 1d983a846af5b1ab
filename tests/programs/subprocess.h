// Programs of this project as child processes.
#pragma once

#include <string>
#include <vector>

namespace zero::programs {

struct Outcome {
  int status = -1;  // exit status; -1: did not exit by itself
  std::string out;  // stdout
  std::string err;  // stderr
};

// Runs `program` ("zero-train") with `arguments` and waits for it. stdin is empty.
Outcome RunProgram(const std::string& program, const std::vector<std::string>& arguments);

// The number of lines in a text; what follows the last line break counts as one.
int LinesOf(const std::string& text);

}  // namespace zero::programs
