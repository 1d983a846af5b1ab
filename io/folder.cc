#include "io/folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "device/status.h"
#include "io/file_calls.h"
#include "io/posix_file.h"
#include "io/temporary_file.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kCopyBytes = 1 << 20;

}  // namespace

absl::Status MakeFolders(const std::string& path) {
  std::vector<std::string> missing;  // innermost first
  // As it is written: ".." after a link leaves the folder that the link leads to.
  fs::path at = path;
  if (!at.has_filename()) at = at.parent_path();  // "a/b/"
  struct stat info = {};
  while (!at.empty() && stat(at.c_str(), &info) != 0) {
    if (errno != ENOENT && errno != ENOTDIR)
      return PosixError(at.string(), "cannot look for the folder", errno);
    if (at.filename() != ".") missing.push_back(at.string());
    at = at.parent_path();
  }
  if (!at.empty() && !S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": cannot be made: ", at.string(), " is not a folder"));
  }
  for (; !missing.empty(); missing.pop_back()) {
    const std::string& folder = missing.back();
    if (Files().MakeFolder(folder.c_str(), 0777) != 0) {
      const int error = errno;
      std::error_code ignored;
      if (error != EEXIST || !fs::is_directory(folder, ignored)) {
        return PosixError(folder, "cannot make the folder", error);
      }
    }
    ZERO_RETURN_IF_ERROR(SyncFolder(FolderOf(folder)));
  }
  return absl::OkStatus();
}

absl::Status RequireFolder(const std::string& path, const std::string& what) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      path, fs::exists(status) ? ": is no folder" : ": no such folder", "; it must be ", what));
}

std::string RandomDigits() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) return PosixError(path, "cannot list the folder", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status RemoveTree(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : PosixError(path, "cannot look for it", errno);
  }
  if (!S_ISDIR(info.st_mode)) {
    if (Files().Unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
    return PosixError(path, "cannot remove the file", errno);
  }
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(path);
  if (!names.ok()) return absl::IsNotFound(names.status()) ? absl::OkStatus() : names.status();
  for (const std::string& name : *names) ZERO_RETURN_IF_ERROR(RemoveTree(path + "/" + name));
  if (Files().RemoveFolder(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return PosixError(path, "cannot remove the folder", errno);
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (Files().Rename(from.c_str(), to.c_str()) != 0) {
    return PosixError(from, absl::StrCat("cannot rename it to ", to), errno);
  }
  const std::string folder = FolderOf(to);
  ZERO_RETURN_IF_ERROR(SyncFolder(folder));
  return FolderOf(from) == folder ? absl::OkStatus() : SyncFolder(FolderOf(from));
}

absl::Status WriteWhole(const std::string& path, const std::string& text) {
  ZERO_ASSIGN_OR_RETURN(TemporaryFile temporary, TemporaryFile::CreateFor(path));
  ZERO_RETURN_IF_ERROR(temporary.file().WriteAt(0, text));
  return temporary.Publish();
}

absl::Status CopyWhole(const std::string& from, const std::string& to) {
  ZERO_ASSIGN_OR_RETURN(const PosixFile source, PosixFile::OpenToRead(from));
  ZERO_ASSIGN_OR_RETURN(TemporaryFile temporary, TemporaryFile::CreateFor(to));
  std::vector<char> bytes(static_cast<size_t>(std::min(source.size(), kCopyBytes)));
  for (int64_t done = 0; done < source.size();) {
    const int64_t count = std::min(source.size() - done, kCopyBytes);
    const absl::Span<char> piece(bytes.data(), static_cast<size_t>(count));
    ZERO_RETURN_IF_ERROR(source.ReadAt(done, piece));
    ZERO_RETURN_IF_ERROR(temporary.file().WriteAt(done, piece));
    done += count;
  }
  return temporary.Publish();
}

absl::StatusOr<std::string> ReadWhole(const std::string& path, int64_t limit) {
  ZERO_ASSIGN_OR_RETURN(const PosixFile file, PosixFile::OpenToRead(path));
  if (file.size() > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", file.size(), " bytes; at most ", limit, " are read"));
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  ZERO_RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(text.data(), text.size())));
  return text;
}

}  // namespace zero
