// The folder of a benchmark on the disk that it measures.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "io/folder.h"

namespace zero::bench {

// A folder for this run only, removed with everything in it.
class Workspace {
 public:
  // In `folder`, the value of --folder; kInvalidArgument if none can be made there.
  static absl::StatusOr<Workspace> Create(const std::string& folder);
  Workspace(Workspace&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  Workspace& operator=(Workspace&&) = delete;
  ~Workspace() {
    if (!path_.empty()) (void)RemoveTree(path_);
  }
  const std::string& path() const { return path_; }

 private:
  explicit Workspace(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace zero::bench
