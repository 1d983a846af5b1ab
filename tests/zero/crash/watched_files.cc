#include "tests/zero/crash/watched_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace zero::test {

std::string PathOf(int descriptor) {
  char path[4096];
  const ssize_t n =
      readlink(absl::StrCat("/proc/self/fd/", descriptor).c_str(), path, sizeof(path));
  return n < 0 ? "" : std::string(path, static_cast<size_t>(n));
}

int WatchedFiles::Next(const char* what, const std::string& path) {
  if (!armed_) return 0;
  const int64_t call = ++calls_;
  return action_ ? action_(call, what, path) : 0;
}

int WatchedFiles::Open(const char* path, int flags, mode_t mode) {
  if ((flags & O_CREAT) != 0) {
    if (const int error = Next("make", path); error > 0) return errno = error, -1;
  }
  return FileCalls::Open(path, flags, mode);
}

ssize_t WatchedFiles::Pwrite(int descriptor, const void* bytes, size_t count, off_t offset) {
  const int error = Next("write", PathOf(descriptor));
  if (error > 0) return errno = error, -1;
  if (error == kShort) count = std::max<size_t>(count / 2, 1);
  return FileCalls::Pwrite(descriptor, bytes, count, offset);
}

int WatchedFiles::Fsync(int descriptor) {
  if (const int error = Next("sync", PathOf(descriptor)); error > 0) return errno = error, -1;
  return FileCalls::Fsync(descriptor);
}

int WatchedFiles::Truncate(int descriptor, off_t bytes) {
  if (const int error = Next("resize", PathOf(descriptor)); error > 0) return errno = error, -1;
  return FileCalls::Truncate(descriptor, bytes);
}

int WatchedFiles::Rename(const char* from, const char* to) {
  if (const int error = Next("rename", from); error > 0) return errno = error, -1;
  return FileCalls::Rename(from, to);
}

int WatchedFiles::MakeFolder(const char* path, mode_t mode) {
  if (const int error = Next("make folder", path); error > 0) return errno = error, -1;
  return FileCalls::MakeFolder(path, mode);
}

int WatchedFiles::Unlink(const char* path) {
  if (const int error = Next("remove", path); error > 0) return errno = error, -1;
  return FileCalls::Unlink(path);
}

int WatchedFiles::RemoveFolder(const char* path) {
  if (const int error = Next("remove folder", path); error > 0) return errno = error, -1;
  return FileCalls::RemoveFolder(path);
}

}  // namespace zero::test
