#include "tools/output_folder.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "examples/train/overwrite.h"

namespace zero::tools {

absl::StatusOr<FolderLock> TakeOutput(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return FolderLock();
  ZERO_RETURN_IF_ERROR(train::RefuseCheckpoint("--output", path));
  absl::StatusOr<FolderLock> lock = FolderLock::Take(path);
  if (lock.ok()) return lock;
  return absl::Status(lock.status().code(),
                      absl::StrCat("--output: ", std::string(lock.status().message())));
}

}  // namespace zero::tools
