#include "tools/output_folder.h"

#include <filesystem>

#include "device/status.h"
#include "examples/train/overwrite.h"

namespace zero::tools {

absl::StatusOr<train::RunFolder> TakeOutput(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    ZERO_RETURN_IF_ERROR(train::RefuseCheckpoint("--output", path));
  }
  return train::RunFolder::Prepare("--output", path);
}

}  // namespace zero::tools
