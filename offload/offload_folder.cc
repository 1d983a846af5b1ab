#include "offload/offload_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "device/status.h"
#include "io/file_calls.h"
#include "io/folder.h"
#include "io/posix_file.h"

namespace zero {
namespace {

// More names taken, or folders removed under one's hands, than chance explains.
constexpr int kMostTries = 100;

// "zero-offload.<host>.", which the folders of other hosts do not begin with.
std::string Prefix() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  std::string name = host;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && std::strchr("-._", c) == nullptr) {
      c = '_';
    }
  }
  return absl::StrCat("zero-offload.", name, ".");
}

bool AllOf(const std::string& text, int (*kind)(int)) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [kind](char c) {
    return kind(static_cast<unsigned char>(c)) != 0;
  });
}

// Whether a name is one that Create gives on this host.
bool IsOfThisHost(const std::string& name) {
  const std::string prefix = Prefix();
  if (name.compare(0, prefix.size(), prefix) != 0) return false;
  const std::vector<std::string> parts = absl::StrSplit(name.substr(prefix.size()), '.');
  return parts.size() == 3 && AllOf(parts[0], std::isdigit) && AllOf(parts[1], std::isdigit) &&
         AllOf(parts[2], std::isxdigit);
}

// What cannot be listed, locked or removed stays. Those that had something in them.
std::vector<std::string> RemoveDead(const std::string& nvme_path) {
  std::vector<std::string> removed;
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(nvme_path);
  if (!names.ok()) return removed;
  for (const std::string& name : *names) {
    if (!IsOfThisHost(name)) continue;
    const std::string path = nvme_path + "/" + name;
    const absl::StatusOr<FolderOwner> lock = FolderOwner::TryOwn(path);
    if (!lock.ok()) continue;
    // Another rank may just have made it, and not locked it yet: it makes another one.
    std::error_code error;
    const bool empty = std::filesystem::is_empty(path, error);
    if (RemoveTree(path).ok() && !empty) removed.push_back(path);
  }
  return removed;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OffloadFolder>> OffloadFolder::Create(const std::string& nvme_path,
                                                                     int rank) {
  if (nvme_path.empty()) {
    return absl::InvalidArgumentError("nvme_path is empty; it must be a folder of a local disk");
  }
  // The program may go to another folder meanwhile.
  std::error_code error;
  const std::string parent = std::filesystem::absolute(nvme_path, error).string();
  absl::Status failure;
  for (int i = 0; i < kMostTries; ++i) {
    const std::string path = absl::StrCat(error ? nvme_path : parent, "/", Prefix(), getpid(), ".",
                                          rank, ".", RandomDigits());
    if (Files().MakeFolder(path.c_str(), 0700) != 0) {
      failure = PosixError(nvme_path, "cannot make a folder for offloaded states there", errno);
      if (errno == EEXIST || errno == EINTR) continue;
      return failure;
    }
    // Until it is locked another rank may take it for one that was left.
    absl::StatusOr<FolderOwner> lock = FolderOwner::TryOwn(path);
    if (lock.ok()) {
      std::unique_ptr<OffloadFolder> folder(new OffloadFolder(path, *std::move(lock)));
      folder->removed_ = RemoveDead(nvme_path);
      return folder;
    }
    failure = lock.status();
    if (!absl::IsNotFound(failure) && !absl::IsUnavailable(failure)) {
      Files().RemoveFolder(path.c_str());
      return failure;
    }
  }
  return failure;
}

OffloadFolder::~OffloadFolder() {
  // What the disk refuses to remove now is removed by the next start.
  RemoveTree(path_).IgnoreError();
}

}  // namespace zero
