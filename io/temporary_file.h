// A file that appears whole, or not at all.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/posix_file.h"

namespace zero {

// A new file ".<name>.<pid>-<n>.tmp" beside the file that it is to become. Move-only; removed by
// the destructor unless Publish has renamed it.
class TemporaryFile {
 public:
  // kInvalidArgument: there is something at `target` that is not a file, which a rename would
  // replace as readily.
  static absl::StatusOr<TemporaryFile> CreateFor(const std::string& target);

  TemporaryFile(TemporaryFile&& other) noexcept
      : target_(std::move(other.target_)),
        temporary_(std::exchange(other.temporary_, "")),
        file_(std::move(other.file_)) {}
  TemporaryFile& operator=(TemporaryFile&& other) = delete;
  ~TemporaryFile();

  const std::string& target() const { return target_; }
  const PosixFile& file() const { return file_; }

  // Gives the file its name, once its content is on the disk, and returns when that is on the disk
  // too. Once. An error of the last step, the sync of the folder, comes when the file has its name.
  absl::Status Publish();

 private:
  TemporaryFile(std::string target, PosixFile file)
      : target_(std::move(target)), temporary_(file.path()), file_(std::move(file)) {}

  std::string target_;
  std::string temporary_;  // empty: renamed, or moved away
  PosixFile file_;
};

}  // namespace zero
