#include "bench/workspace.h"

#include <stdlib.h>

#include "absl/strings/str_cat.h"

namespace zero::bench {

absl::StatusOr<Workspace> Workspace::Create(const std::string& folder) {
  std::string path = folder + "/zero-bench-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--folder: no folder can be made in '", folder, "'"));
  }
  return Workspace(path);
}

}  // namespace zero::bench
