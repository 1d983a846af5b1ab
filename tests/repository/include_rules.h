// Which folder may include and name what.
#pragma once

#include <string>
#include <vector>

namespace zero::repository {

// A file of folder X may include "Y/..." only if Y is X or a lower floor; examples, bench and tools
// stand beside each other on the highest floor and do not meet; tests may include everything. One
// finding, "path:line: ...", for each include that breaks this.
std::vector<std::string> FindUpwardIncludes(const std::string& root);

// Outside of .cu files only device/ names the CUDA runtime, and only collectives/ names NCCL and
// Gloo. Tests, which hold stand-ins for them, are free.
std::vector<std::string> FindVendorNames(const std::string& root);

}  // namespace zero::repository
