#include "io/folder_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "io/file_calls.h"
#include "io/posix_file.h"

namespace zero {
namespace {

constexpr char kName[] = ".zero-lock";

std::string ThisProcess() {
  char host[256] = "";
  (void)gethostname(host, sizeof(host) - 1);
  return absl::StrCat("process ", getpid(), " on ", host, "\n");
}

// What the file of a lock says; its owner may not have written it yet.
std::string Holder(int descriptor) {
  char text[300] = "";
  const ssize_t count = Files().Pread(descriptor, text, sizeof(text) - 1, 0);
  if (count <= 0) return "another process";
  return std::string(absl::StripSuffix(std::string(text, static_cast<size_t>(count)), "\n"));
}

// Whether the name still is that of the open file: its last owner may just have removed it.
bool IsAt(const std::string& path, int descriptor) {
  struct stat open = {}, named = {};
  return fstat(descriptor, &open) == 0 && stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

}  // namespace

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& folder) {
  return TakeAt(absl::StrCat(folder, "/", kName), folder, "folder");
}

absl::StatusOr<FolderLock> FolderLock::TakeForFile(const std::string& file) {
  const size_t name = file.rfind('/') + 1;  // 0 where there is none
  return TakeAt(absl::StrCat(file.substr(0, name), ".", file.substr(name), kName), file, "file");
}

absl::StatusOr<FolderLock> FolderLock::TakeAt(const std::string& path, const std::string& what,
                                              const char* kind) {
  constexpr int kTries = 100;
  for (int tried = 0; tried < kTries; ++tried) {
    const int descriptor = Files().Open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) return PosixError(path, "cannot create", errno);
    if (Files().Lock(descriptor) != 0) {
      const int error = errno;
      const std::string holder = error == EWOULDBLOCK ? Holder(descriptor) : "";
      Files().Close(descriptor);
      if (error == EINTR) continue;
      if (error == EWOULDBLOCK) {
        return absl::FailedPreconditionError(absl::StrCat(
            "'", what, "' is in use by ", holder, ", which may end on its own; give another ", kind,
            ", or end that process"));
      }
      Files().Unlink(path.c_str());
      return FolderLock();
    }
    if (IsAt(path, descriptor)) {
      const std::string text = ThisProcess();
      // For messages: without it the lock is as good.
      (void)Files().Truncate(descriptor, 0);
      (void)Files().Pwrite(descriptor, text.data(), text.size(), 0);
      return FolderLock(path, descriptor);
    }
    Files().Close(descriptor);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("'", what, "' is taken and left by other processes again and again"));
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : path_(std::exchange(other.path_, "")), descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FolderLock::~FolderLock() {
  if (!held()) return;
  // While it is held: nobody else's is removed.
  Files().Unlink(path_.c_str());
  Files().Close(descriptor_);
}

}  // namespace zero
