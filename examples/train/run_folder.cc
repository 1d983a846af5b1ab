#include "examples/train/run_folder.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/posix_file.h"

namespace zero::train {
namespace {

namespace fs = std::filesystem;

}  // namespace

absl::Status RunFolder::Wrong(const std::string& why) const {
  return absl::InvalidArgumentError(absl::StrCat(flag_, ": '", path_, "' ", why));
}

absl::StatusOr<RunFolder> RunFolder::Prepare(const std::string& flag, const std::string& path,
                                             const RunFolder* other) {
  RunFolder folder;
  folder.flag_ = flag;
  folder.path_ = path;
  if (path.empty()) return folder;
  ZERO_RETURN_IF_ERROR(folder.MakeFolders());
  ZERO_RETURN_IF_ERROR(folder.TryToWrite());
  std::error_code error;
  if (other != nullptr && fs::equivalent(path, other->path_, error)) return folder;
  absl::StatusOr<FolderLock> lock = FolderLock::Take(path);
  if (!lock.ok()) {
    return absl::Status(lock.status().code(),
                        absl::StrCat(flag, ": ", std::string(lock.status().message())));
  }
  folder.open_to_others_ = !lock->held();
  folder.lock_ = *std::move(lock);
  return folder;
}

RunFolder& RunFolder::operator=(RunFolder&& other) noexcept {
  std::swap(flag_, other.flag_);
  std::swap(path_, other.path_);
  std::swap(made_, other.made_);
  std::swap(lock_, other.lock_);
  std::swap(open_to_others_, other.open_to_others_);
  return *this;
}

RunFolder::~RunFolder() {
  lock_ = FolderLock();
  std::error_code ignored;
  while (!made_.empty()) {
    fs::remove(made_.back(), ignored);  // fails where there is something in it
    made_.pop_back();
  }
}

std::vector<std::string> RunFolder::traces() const {
  std::vector<std::string> paths;
  if (lock_.held()) paths.push_back(lock_.path());
  for (auto at = made_.rbegin(); at != made_.rend(); ++at) paths.push_back(at->string());
  return paths;
}

absl::Status RunFolder::MakeFolders() {
  std::vector<fs::path> missing;
  std::error_code error;
  fs::path at = fs::absolute(path_).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();  // "a/b/"
  while (!fs::exists(fs::symlink_status(at, error)) && at != at.root_path()) {
    missing.push_back(at);
    at = at.parent_path();
  }
  if (!fs::is_directory(at, error)) {
    return Wrong(absl::StrCat("cannot be a folder: '", at.string(), "' is none"));
  }
  for (; !missing.empty(); missing.pop_back()) {
    const fs::path& folder = missing.back();
    if (!fs::create_directory(folder, error) && error) {
      return Wrong(absl::StrCat("cannot be made: ", folder.string(), ": ", error.message()));
    }
    made_.push_back(folder);
    ZERO_RETURN_IF_ERROR(SyncFolder(folder.parent_path().string()));
  }
  return absl::OkStatus();
}

absl::Status RunFolder::TryToWrite() const {
  const std::string probe = (fs::path(path_) / absl::StrCat(".probe.", getpid(), ".tmp")).string();
  const absl::StatusOr<PosixFile> file = PosixFile::CreateNew(probe);
  std::error_code ignored;
  if (file.ok()) fs::remove(probe, ignored);
  if (file.ok() || absl::IsAlreadyExists(file.status())) return absl::OkStatus();
  return Wrong(absl::StrCat("cannot be written to: ", std::string(file.status().message())));
}

}  // namespace zero::train
