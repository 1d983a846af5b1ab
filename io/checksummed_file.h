// Files with a CRC32C for each block, which is kept elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "io/posix_file.h"

namespace zero {

// Bytes of a file that one checksum is for; the last block may be shorter.
inline constexpr int64_t kChecksumBlock = 1 << 20;

// Writes a new file in order. Move-only. What was written stays if it is destroyed without Finish.
class ChecksummedWriter {
 public:
  // kAlreadyExists.
  static absl::StatusOr<ChecksummedWriter> Create(const std::string& path);

  // After an error every later call returns it.
  absl::Status Append(absl::Span<const char> bytes);
  int64_t bytes() const { return bytes_; }
  // The checksums of all blocks, once the content is on the disk; the file's entry in its folder
  // need not be. Nothing may be called afterwards.
  absl::StatusOr<std::vector<uint32_t>> Finish();

 private:
  explicit ChecksummedWriter(PosixFile file) : file_(std::move(file)) {}

  PosixFile file_;
  int64_t bytes_ = 0;
  uint32_t crc_ = 0;  // of the block that is not full
  std::vector<uint32_t> checksums_;
  absl::Status error_;
};

// Reads such a file anywhere; no byte is given out before its block has been verified. Move-only;
// for one thread.
class ChecksummedReader {
 public:
  // kDataLoss: the file has not `bytes` bytes, or there is not one checksum for each block.
  static absl::StatusOr<ChecksummedReader> Open(const std::string& path, int64_t bytes,
                                                std::vector<uint32_t> checksums);

  int64_t bytes() const { return file_->size(); }
  const std::string& path() const { return file_->path(); }

  // kDataLoss: a block that these bytes lie in is damaged; its place is named. kOutOfRange. Keeps
  // the last block that was used in part.
  absl::Status ReadAt(int64_t offset, absl::Span<char> out);
  // Every block. `progress`, unless it is null, is told after each.
  absl::Status Verify(const std::function<void(int64_t done, int64_t total)>& progress);

 private:
  // The block after the one that was kept last, while it is read on another thread.
  struct Next {
    int64_t block = -1;
    std::vector<char> bytes;
    std::future<absl::Status> read;  // goes first, and waits
  };

  ChecksummedReader(PosixFile file, std::vector<uint32_t> checksums)
      : file_(std::make_shared<const PosixFile>(std::move(file))),
        checksums_(std::move(checksums)) {}
  int64_t BytesOfBlock(int64_t block) const;
  absl::Status CheckBlock(int64_t block, absl::Span<const char> bytes) const;
  absl::Status ReadBlock(int64_t block, absl::Span<char> out) const;
  absl::Status KeepBlock(int64_t block);
  void ReadNext(int64_t block);

  std::shared_ptr<const PosixFile> file_;
  std::vector<uint32_t> checksums_;
  std::vector<char> kept_;
  int64_t kept_block_ = -1;
  std::unique_ptr<Next> next_;
};

}  // namespace zero
