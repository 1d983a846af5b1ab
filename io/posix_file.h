// Files read and written by position, with the path and the system's words in every error.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace zero {

// "<path>: <what>: <text of errno>", with the code that fits: kNotFound, kPermissionDenied,
// kResourceExhausted (no space, quota, file too large), kDataLoss (EIO), ...
absl::Status PosixError(const std::string& path, const std::string& what, int error);

struct TransferResult {
  int64_t done = 0;
  int error = 0;  // errno; 0 with done < bytes: the end of the file
};

// Repeats call(done, left), which transfers at most `left` bytes after the first `done` ones as
// pread and pwrite do, until `bytes` are through: short transfers go on, EINTR tries again.
TransferResult TransferAll(int64_t bytes, absl::FunctionRef<int64_t(int64_t, int64_t)> call);

// Owns an open file. Move-only; the methods may be called from several threads.
class PosixFile {
 public:
  // A regular file that exists. kInvalidArgument for a folder, pipe or device.
  static absl::StatusOr<PosixFile> OpenToRead(const std::string& path);
  // A regular file that exists, to be changed. Likewise.
  static absl::StatusOr<PosixFile> OpenToWrite(const std::string& path);
  // A file that must not exist yet (kAlreadyExists), to be written.
  static absl::StatusOr<PosixFile> CreateNew(const std::string& path);

  PosixFile(PosixFile&& other) noexcept;
  PosixFile& operator=(PosixFile&& other) noexcept;
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;
  ~PosixFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // when it was opened

  // All of `out` from byte `offset` on. kDataLoss if the file ends before.
  absl::Status ReadAt(int64_t offset, absl::Span<char> out) const;
  absl::Status WriteAt(int64_t offset, absl::Span<const char> bytes) const;
  // Cuts the file, or makes it longer with zeros.
  absl::Status Resize(int64_t bytes) const;
  // From now on transfers go past the system's cache, which saves a copy and the memory of one; or
  // no longer do. Then memory, offsets and counts must be multiples of kDiskAlignment. False, and
  // nothing has changed: the file system has no such thing.
  bool Bypass(bool on) const;
  // Asks the system to begin to bring a range that was written to the disk, ahead of Sync.
  void WillSync(int64_t offset, int64_t bytes) const;
  // Returns when the content is on the disk.
  absl::Status Sync() const;

 private:
  static absl::StatusOr<PosixFile> OpenExisting(const std::string& path, int access);
  PosixFile(int descriptor, std::string path, int64_t size)
      : descriptor_(descriptor), path_(std::move(path)), size_(size) {}

  int descriptor_ = -1;
  std::string path_;
  int64_t size_ = 0;
};

// The folder that `path` lies in; "." if it names none.
std::string FolderOf(const std::string& path);

// Returns when the folder's entries (a rename, say) are on the disk.
absl::Status SyncFolder(const std::string& folder);

}  // namespace zero
