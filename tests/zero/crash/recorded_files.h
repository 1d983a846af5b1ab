// What a disk holds after a power cut: the system calls of a save, recorded, and what of them is on
// the disk after each.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/io/replaced_files.h"

namespace zero::test {

// A call that changed something below the folder that is watched. Paths are relative to it.
struct FileOperation {
  enum Kind { kMake, kWrite, kSync, kResize, kRename, kMakeFolder, kUnlink, kRemoveFolder };
  Kind kind = kMake;
  std::string path = {};
  std::string to = {};     // kRename
  std::string bytes = {};  // kWrite
  int64_t offset = 0;      // kWrite; kResize: the size
};

// In force from its making to its end; passes everything on and keeps it in order.
class RecordedFiles : public ReplacedFiles {
 public:
  explicit RecordedFiles(const std::string& folder);

  std::vector<FileOperation> log() const;
  // Operations so far.
  int64_t size() const;

  int Open(const char* path, int flags, mode_t mode) override;
  ssize_t Pwrite(int descriptor, const void* bytes, size_t count, off_t offset) override;
  int Fsync(int descriptor) override;
  int Truncate(int descriptor, off_t bytes) override;
  int Rename(const char* from, const char* to) override;
  int MakeFolder(const char* path, mode_t mode) override;
  int Unlink(const char* path) override;
  int RemoveFolder(const char* path) override;

 private:
  // Relative to the folder; empty outside of it.
  std::string Inside(const std::string& path) const;
  // Makes the call and keeps it, so that the log has the order of the calls.
  template <class Call>
  auto Keep(FileOperation operation, Call call);

  const std::string folder_;
  mutable std::mutex mutex_;
  std::vector<FileOperation> log_;
};

// How much of what was not synced a power cut takes. Content of files always goes back to what was
// synced last.
enum class Names {
  kLost,  // entries of folders too: they are as they were when the folder was synced
  kKept,  // they are all there, as on a file system that writes its journal in order
};

// The tree after the first `count` operations and a power cut, as (path, content); folders end with
// '/'.
std::map<std::string, std::string> ImageAfter(const std::vector<FileOperation>& log, int64_t count,
                                              Names names);
// Makes the files.
void WriteImage(const std::map<std::string, std::string>& image, const std::string& folder);

}  // namespace zero::test
