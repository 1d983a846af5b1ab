#include "io/folder_owner.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "io/file_calls.h"
#include "io/posix_file.h"

namespace zero {
namespace {

int OpenFolder(const std::string& path) {
  int descriptor = -1;
  do {
    descriptor = Files().Open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

}  // namespace

absl::StatusOr<FolderOwner> FolderOwner::TryOwn(const std::string& path) {
  FolderOwner lock(OpenFolder(path));
  if (lock.descriptor_ < 0) return PosixError(path, "cannot open the folder to lock it", errno);
  int result = 0;
  do {
    result = Files().Lock(lock.descriptor_);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno == EWOULDBLOCK) {
    return absl::UnavailableError(absl::StrCat(path, ": another process has locked it"));
  }
  if (result != 0) {
    return absl::UnimplementedError(PosixError(path, "cannot lock the folder", errno).message());
  }
  // Who removes a folder locks it first: it may have gone between opening and locking.
  struct stat locked = {};
  struct stat there = {};
  if (fstat(lock.descriptor_, &locked) != 0 || lstat(path.c_str(), &there) != 0 ||
      locked.st_ino != there.st_ino || locked.st_dev != there.st_dev) {
    return absl::NotFoundError(absl::StrCat(path, ": removed before it was locked"));
  }
  return lock;
}

FolderOwner::~FolderOwner() {
  if (descriptor_ >= 0) Files().Close(descriptor_);
}

}  // namespace zero
