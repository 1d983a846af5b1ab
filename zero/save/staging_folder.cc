#include "zero/save/staging_folder.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/file_calls.h"
#include "io/folder.h"
#include "io/posix_file.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = ".saving-";

std::string NewName() { return absl::StrCat(kPrefix, RandomDigits()); }

// The folders that MakeFolders will make, outermost first.
std::vector<std::string> Missing(const std::string& path) {
  std::vector<std::string> missing;
  std::error_code error;
  fs::path at = fs::absolute(path, error).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();  // "a/b/"
  for (; !at.empty() && !fs::exists(fs::symlink_status(at, error)); at = at.parent_path()) {
    missing.insert(missing.begin(), at.string());
  }
  return missing;
}

}  // namespace

StagingFolder::StagingFolder(StagingFolder&& other) noexcept
    : target_(std::move(other.target_)),
      path_(std::exchange(other.path_, "")),
      rank_(other.rank_),
      first_rank_(other.first_rank_),
      shared_(other.shared_),
      agreed_(other.agreed_),
      abandoned_(other.abandoned_),
      made_(std::exchange(other.made_, {})) {}

StagingFolder::~StagingFolder() {
  if (path_.empty()) return;
  if (!agreed_) {
    // The last of those that see it removes the folder itself.
    Files().Unlink(ProbeOf(rank_).c_str());
    Files().RemoveFolder(path_.c_str());
  } else if (leads() && !abandoned_) {
    (void)RemoveTree(path_);
  }
  if (agreed_ && !leads()) return;
  // Fails where there is something in it.
  for (auto at = made_.rbegin(); at != made_.rend(); ++at) Files().RemoveFolder(at->c_str());
}

std::string StagingFolder::ProbeOf(int rank) const { return absl::StrCat(path_, "/probe-", rank); }

absl::Status StagingFolder::Make() {
  ZERO_RETURN_IF_ERROR(MakeFolders(target_));
  if (Files().MakeFolder(path_.c_str(), 0777) != 0 && errno != EEXIST) {
    return PosixError(path_, "cannot make the folder", errno);
  }
  return PosixFile::CreateNew(ProbeOf(rank_)).status();
}

int StagingFolder::FindFirstRank(int ranks) const {
  for (int r = 0; r < ranks; ++r) {
    // Opened by its name: what a file system over a network says of a folder may be old.
    if (r == rank_ || PosixFile::OpenToRead(ProbeOf(r)).ok()) return r;
  }
  return rank_;
}

absl::StatusOr<StagingFolder> StagingFolder::Create(const Context& context, RankExchange* exchange,
                                                    const std::string& target) {
  const Stream& stream = *context.communication;
  StagingFolder folder(target, context.rank());
  folder.made_ = Missing(target);
  // Nobody makes anything before all have looked what is missing.
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        exchange->Run(stream, kSaving, NewName()));
  folder.path_ = absl::StrCat(target, "/", names[0]);
  ZERO_RETURN_IF_ERROR(exchange->Agree(stream, kSaving, folder.Make()));
  ZERO_ASSIGN_OR_RETURN(
      const std::vector<std::string> firsts,
      exchange->Run(stream, kSaving, absl::StrCat(folder.FindFirstRank(context.group->size()))));
  folder.first_rank_ = std::stoi(firsts[static_cast<size_t>(context.rank())]);
  folder.shared_ = std::set<std::string>(firsts.begin(), firsts.end()).size() == 1;
  folder.agreed_ = true;
  Files().Unlink(folder.ProbeOf(context.rank()).c_str());
  return folder;
}

absl::StatusOr<StagingFolder> StagingFolder::CreateAlone(const std::string& target) {
  StagingFolder folder(target, 0);
  folder.made_ = Missing(target);
  folder.path_ = absl::StrCat(target, "/", NewName());
  ZERO_RETURN_IF_ERROR(folder.Make());
  folder.shared_ = true;
  folder.agreed_ = true;
  Files().Unlink(folder.ProbeOf(0).c_str());
  return folder;
}

absl::StatusOr<std::vector<std::string>> StagingFolder::Others() const {
  ZERO_ASSIGN_OR_RETURN(std::vector<std::string> others, InterruptedSaves(target_));
  others.erase(std::remove(others.begin(), others.end(), path_), others.end());
  return others;
}

absl::StatusOr<std::vector<std::string>> InterruptedSaves(const std::string& target) {
  std::vector<std::string> found;
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(target);
  if (absl::IsNotFound(names.status())) return found;
  ZERO_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    if (name.size() != sizeof(kPrefix) - 1 + 16 || !absl::StartsWith(name, kPrefix)) continue;
    found.push_back(absl::StrCat(target, "/", name));
  }
  return found;
}

}  // namespace zero
