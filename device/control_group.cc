#include "device/control_group.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace zero {
namespace {

// `top` + `path`, and the folders between the two.
void AddWithParents(const std::string& top, std::string path, std::vector<std::string>* folders) {
  while (path.size() > 1 && path[0] == '/') {
    folders->push_back(top + path);
    path.resize(path.rfind('/'));
  }
}

}  // namespace

std::vector<std::string> ControlGroupFolders(const std::string& root,
                                             const std::string& controller) {
  const std::string tree = root + "/sys/fs/cgroup";
  const std::string old = absl::StrCat(tree, "/", controller);  // of version 1
  std::vector<std::string> folders = {tree, old};
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "4:cpu,cpuacct:/job": number, controllers (none: version 2), group.
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (parts[1].empty()) {
      AddWithParents(tree, parts[2], &folders);
    } else if (std::find(controllers.begin(), controllers.end(), controller) != controllers.end()) {
      AddWithParents(old, parts[2], &folders);
    }
  }
  return folders;
}

}  // namespace zero
