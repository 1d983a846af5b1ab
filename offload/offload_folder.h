// The folder of one run for what it offloads to a disk.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace zero {

// Move-only. The destructor removes the folder with everything in it.
class OffloadFolder {
 public:
  // Makes a folder with a name of its own in `path`, for rank `rank`. Errors name the path.
  static absl::StatusOr<OffloadFolder> Create(const std::string& path, int rank);
  OffloadFolder(OffloadFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  OffloadFolder& operator=(OffloadFolder&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~OffloadFolder();

  // Of this rank's file, which is not there yet.
  std::string file() const { return path_ + "/state"; }

 private:
  explicit OffloadFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace zero
