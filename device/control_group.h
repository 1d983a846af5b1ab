// The control groups of Linux that limit this process.
#pragma once

#include <string>
#include <vector>

namespace zero {

// The folders, below `root`, where files of the limits that `controller` ("memory", "cpu") sets
// lie, of either version of control groups: of the groups that this process is in, of those around
// them, and of the one that a container shows as the root. Files may be missing in any of them.
std::vector<std::string> ControlGroupFolders(const std::string& root,
                                             const std::string& controller);

}  // namespace zero
