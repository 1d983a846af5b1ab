// Files that are not what their names say.
#pragma once

#include <string>

namespace zero {

// What a file that cannot be read as what it should be is instead, told from its first bytes: "it
// is a git-lfs pointer, ..."; empty if unknown.
std::string OtherKindOfFile(const std::string& start);

}  // namespace zero
