// A file of known size that one process fills and reads again, past the system's cache.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "io/aligned_bytes.h"

namespace zero {

// Owns an open file; what is in it is moved by DiskQueue. Move-only. The destructor closes the file
// and leaves it where it is.
class DiskFile {
 public:
  // Creates a file that must not exist yet and sets its room on the disk aside, so that no write
  // finds the disk full; it reads as zeros. Where the file system cannot do that, there is as much
  // room now, and note() says so. Opened with O_DIRECT where the file system takes it.
  // kResourceExhausted with the bytes wanted and free, kAlreadyExists and the other codes of
  // PosixError; there is no file then that was not there before.
  static absl::StatusOr<DiskFile> Create(const std::string& path, int64_t bytes);

  DiskFile(DiskFile&& other) noexcept;
  DiskFile& operator=(DiskFile&& other) noexcept;
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;
  ~DiskFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // bytes; on the disk, up to a multiple of kDiskAlignment
  int descriptor() const { return descriptor_; }
  bool direct() const { return direct_; }
  // Of what a transfer needs, in bytes, at most kDiskAlignment; 1 where it is not direct.
  int64_t offset_alignment() const { return offset_alignment_; }
  int64_t memory_alignment() const { return memory_alignment_; }
  // Why it is not direct, and that no room is set aside, for whoever runs the program; empty if it
  // is as it should be.
  const std::string& note() const { return note_; }

 private:
  DiskFile(int descriptor, std::string path, int64_t size)
      : descriptor_(descriptor), path_(std::move(path)), size_(size) {}
  // Opens it once more, with O_DIRECT, and becomes that if it works.
  void TryDirect();

  int descriptor_ = -1;
  std::string path_;
  int64_t size_ = 0;
  bool direct_ = false;
  int64_t offset_alignment_ = 1;
  int64_t memory_alignment_ = 1;
  std::string note_;
};

// " where 12 are free": bytes that may still be written where `path` lies, for messages. Empty if
// the system does not say.
std::string FreeThere(const std::string& path);

}  // namespace zero
