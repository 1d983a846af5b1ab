#include "io/temporary_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/file_calls.h"

namespace zero {

absl::StatusOr<TemporaryFile> TemporaryFile::CreateFor(const std::string& target) {
  struct stat there = {};
  if (lstat(target.c_str(), &there) == 0 && !S_ISREG(there.st_mode) && !S_ISLNK(there.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(target, ": exists and is not a regular file"));
  }
  static std::atomic<int> counter{0};
  const std::filesystem::path path(target);
  // Cut, so that the name stays below the limit of file systems.
  const std::string name = path.filename().string().substr(0, 120);
  while (true) {
    const std::string temporary = absl::StrCat(".", name, ".", getpid(), "-", counter++, ".tmp");
    absl::StatusOr<PosixFile> file =
        PosixFile::CreateNew((path.parent_path() / temporary).string());
    if (file.ok()) return TemporaryFile(target, *std::move(file));
    if (!absl::IsAlreadyExists(file.status())) return file.status();
  }
}

TemporaryFile::~TemporaryFile() {
  if (!temporary_.empty()) Files().Unlink(temporary_.c_str());
}

absl::Status TemporaryFile::Publish() {
  ZERO_RETURN_IF_ERROR(file_.Sync());
  if (Files().Rename(temporary_.c_str(), target_.c_str()) != 0) {
    return PosixError(target_, absl::StrCat("cannot rename ", temporary_, " to it"), errno);
  }
  temporary_.clear();
  return SyncFolder(FolderOf(target_));
}

}  // namespace zero
