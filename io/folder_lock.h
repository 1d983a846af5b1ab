// A folder of the user's that one process at a time works in.
//
// Not FolderOwner (io/folder_owner.h), which locks a folder itself: here the lock is on a file in
// it, since a folder over a network can be locked by no process, and who is refused wants to know
// by whom. There the folder is the process's own, goes with it, and must not be without a lock.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace zero {

// Holds a lock of the system on a file in a folder, which says who holds it. The lock ends with the
// process however that ends, so what is left of one that was killed is in nobody's way. Move-only;
// the destructor removes the file and gives the lock up.
class FolderLock {
 public:
  // `folder` must be there. kFailedPrecondition: another process, or another lock of this one, has
  // it, and is named. Where the file system has no locks nothing is held, and that is OK; on one
  // over a network a lock counts on other machines if its server says so.
  static absl::StatusOr<FolderLock> Take(const std::string& folder);
  FolderLock() = default;
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;
  ~FolderLock();

  bool held() const { return descriptor_ >= 0; }
  // The file; empty where nothing is held.
  const std::string& path() const { return path_; }

 private:
  FolderLock(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace zero
