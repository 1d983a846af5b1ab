// A folder that belongs to somebody as long as its process lives.
//
// Not FolderLock (io/folder_lock.h), which locks a file in a folder of the user's: here others may
// remove the folder when its process has ended, so that the lock has to be on what is removed, and
// a file system that has no locks is refused.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace zero {

// Held until the object is destroyed or the process ends, however it ends. Processes, and the
// locks of one process, exclude each other; a process that is forked shares what its parent holds.
// Move-only.
class FolderOwner {
 public:
  // Locks a folder that exists, and does not wait. kUnavailable: somebody else holds it. kNotFound:
  // there is none, or it was removed before it was locked. Links are not followed.
  static absl::StatusOr<FolderOwner> TryOwn(const std::string& path);

  FolderOwner(FolderOwner&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FolderOwner& operator=(FolderOwner&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FolderOwner();

 private:
  explicit FolderOwner(int descriptor) : descriptor_(descriptor) {}

  int descriptor_ = -1;
};

}  // namespace zero
