// Where a rank's offloaded state lies on a disk.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "io/folder_owner.h"

namespace zero {

// A folder of one rank, "zero-offload.<host>.<pid>.<rank>.<digits>", which nobody else has. It
// belongs to the process while that lives, and goes with everything in it when this is destroyed.
class OffloadFolder {
 public:
  // Makes it in `nvme_path`, a folder that exists, on a local disk, and first removes those that
  // processes of this host have left there which live no more. Folders of others stay. Errors name
  // nvme_path and say what the system says; nothing of this rank is left then. Ranks that share
  // `nvme_path` create folders before any creates a file: what one of them removes makes room for
  // all.
  static absl::StatusOr<std::unique_ptr<OffloadFolder>> Create(const std::string& nvme_path,
                                                               int rank);
  ~OffloadFolder();
  OffloadFolder(const OffloadFolder&) = delete;
  OffloadFolder& operator=(const OffloadFolder&) = delete;

  const std::string& path() const { return path_; }
  // The path of a file in it.
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // The folders of dead processes that Create has removed, with what was in them.
  const std::vector<std::string>& removed() const { return removed_; }

 private:
  OffloadFolder(std::string path, FolderOwner owner)
      : path_(std::move(path)), owner_(std::move(owner)) {}

  const std::string path_;
  const FolderOwner owner_;
  std::vector<std::string> removed_;
};

}  // namespace zero
