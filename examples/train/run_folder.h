// A folder that a run writes to.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/folder_lock.h"

namespace zero::train {

// Makes sure before a long run that files can be written to a folder, that no other run writes
// there while this lives, and leaves no trace if nothing is written: folders that it made are
// removed again while they are empty. Move-only.
class RunFolder {
 public:
  // Makes the folder and those above it where they are missing, on the disk, and tries to write
  // there. An empty path: none is wanted. `other`, unless null, may be the same folder, which it
  // holds already. kInvalidArgument, kFailedPrecondition name the flag, the path and what is wrong.
  static absl::StatusOr<RunFolder> Prepare(const std::string& flag, const std::string& path,
                                           const RunFolder* other = nullptr);
  RunFolder() = default;
  RunFolder(RunFolder&&) = default;
  RunFolder& operator=(RunFolder&& other) noexcept;
  ~RunFolder();

  const std::string& path() const { return path_; }
  // Nothing keeps other runs out: the file system has no locks.
  bool open_to_others() const { return open_to_others_; }
  // What goes with it: a file, then the folders that were made, innermost first.
  std::vector<std::string> traces() const;

 private:
  absl::Status Wrong(const std::string& why) const;
  absl::Status MakeFolders();
  absl::Status TryToWrite() const;

  std::string flag_, path_;
  std::vector<std::filesystem::path> made_;  // innermost last
  FolderLock lock_;
  bool open_to_others_ = false;
};

}  // namespace zero::train
