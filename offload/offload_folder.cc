#include "offload/offload_folder.h"

#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/file_calls.h"
#include "io/folder.h"
#include "io/posix_file.h"

namespace zero {

absl::StatusOr<OffloadFolder> OffloadFolder::Create(const std::string& path, int rank) {
  ZERO_RETURN_IF_ERROR(MakeFolders(path));
  const std::string folder = absl::StrCat(path, "/zero-offload-", RandomDigits(), "-rank-", rank);
  if (Files().MakeFolder(folder.c_str(), 0700) != 0) {
    return PosixError(folder, "cannot be made", errno);
  }
  return OffloadFolder(folder);
}

OffloadFolder::~OffloadFolder() {
  if (!path_.empty()) (void)RemoveTree(path_);
}

}  // namespace zero
