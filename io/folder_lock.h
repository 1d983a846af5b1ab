// A folder of the user's, or a file, that one process at a time works with.
//
// Not FolderOwner (io/folder_owner.h), which locks a folder itself: here the lock is on a file in
// it, since a folder over a network can be locked by no process, and who is refused wants to know
// by whom. There the folder is the process's own, goes with it, and must not be without a lock.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace zero {

// Holds a lock of the system on a file of its own, which says who holds it. The lock ends with the
// process however that ends, so what is left of one that was killed is in nobody's way. Move-only;
// the destructor removes the file and gives the lock up.
class FolderLock {
 public:
  // `folder` must be there. kFailedPrecondition: another process, or another lock of this one, has
  // it, and is named. Where the file system has no locks nothing is held, and that is OK; on one
  // over a network a lock counts on other machines if its server says so.
  static absl::StatusOr<FolderLock> Take(const std::string& folder);
  // The same of one file, by a file beside it: ".NAME.zero-lock".
  static absl::StatusOr<FolderLock> TakeForFile(const std::string& file);
  FolderLock() = default;
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;
  ~FolderLock();

  bool held() const { return descriptor_ >= 0; }
  // The file; empty where nothing is held.
  const std::string& path() const { return path_; }

 private:
  static absl::StatusOr<FolderLock> TakeAt(const std::string& path, const std::string& what,
                                           const char* kind);
  FolderLock(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace zero
