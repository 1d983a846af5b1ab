#include "examples/train/output_folder.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/posix_file.h"

namespace zero::train {
namespace {

namespace fs = std::filesystem;

absl::Status Wrong(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("--output: '", path, "' ", why));
}

// A name that no other process uses.
std::string TemporaryName(const std::string& path) {
  const fs::path target(path);
  return (target.parent_path() /
          absl::StrCat(".", target.filename().string(), ".", getpid(), ".tmp"))
      .string();
}

}  // namespace

absl::StatusOr<OutputFolder> OutputFolder::Prepare(const std::string& path) {
  OutputFolder folder(path);
  if (path.empty()) return folder;
  ZERO_RETURN_IF_ERROR(folder.MakeFolders());
  ZERO_RETURN_IF_ERROR(folder.TryToWrite());
  return folder;
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  while (!made_.empty()) {
    fs::remove(made_.back(), ignored);  // fails where there is something in it
    made_.pop_back();
  }
}

std::vector<std::string> OutputFolder::made() const {
  std::vector<std::string> paths;
  for (const fs::path& path : made_) paths.insert(paths.begin(), path.string());
  return paths;
}

absl::Status OutputFolder::MakeFolders() {
  std::vector<fs::path> missing;
  std::error_code error;
  fs::path at = fs::absolute(path_).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();  // "a/b/"
  while (!fs::exists(fs::symlink_status(at, error)) && at != at.root_path()) {
    missing.push_back(at);
    at = at.parent_path();
  }
  if (!fs::is_directory(at, error)) {
    return Wrong(path_, absl::StrCat("cannot be a folder: '", at.string(), "' is none"));
  }
  for (; !missing.empty(); missing.pop_back()) {
    if (!fs::create_directory(missing.back(), error) && error) {
      return Wrong(
          path_, absl::StrCat("cannot be made: ", missing.back().string(), ": ", error.message()));
    }
    made_.push_back(missing.back());
  }
  return absl::OkStatus();
}

absl::Status OutputFolder::TryToWrite() const {
  for (const char* name : {"model.safetensors", "config.json"}) {
    std::error_code error;
    if (fs::is_directory(fs::path(path_) / name, error)) {
      return Wrong(path_, absl::StrCat("cannot be written to: its ", name, " is a folder"));
    }
  }
  const std::string probe = TemporaryName((fs::path(path_) / "probe").string());
  const absl::StatusOr<PosixFile> file = PosixFile::CreateNew(probe);
  std::error_code ignored;
  if (file.ok()) fs::remove(probe, ignored);
  if (file.ok() || absl::IsAlreadyExists(file.status())) return absl::OkStatus();
  return Wrong(path_, absl::StrCat("cannot be written to: ", file.status().message()));
}

}  // namespace zero::train
