// Files with a CRC32C for each block, which is kept elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "io/posix_file.h"
#include "io/worker.h"

namespace zero {

// Bytes of a file that one checksum is for; the last block may be shorter.
inline constexpr int64_t kChecksumBlock = 1 << 20;

// Writes a new file in order, past the system's cache where the file system can: blocks go to the
// disk while later ones are filled. Move-only. What was written stays if it is destroyed
// without Finish.
class ChecksummedWriter {
 public:
  // kAlreadyExists. kResourceExhausted: no memory for a few blocks.
  static absl::StatusOr<ChecksummedWriter> Create(const std::string& path);
  ChecksummedWriter(ChecksummedWriter&&) noexcept;
  ~ChecksummedWriter();

  // Copies the bytes. The error of a block comes with a later one, or in Finish; after it every
  // later call returns it.
  absl::Status Append(absl::Span<const char> bytes);
  int64_t bytes() const { return bytes_; }
  // The checksums of all blocks, once the content is on the disk; the file's entry in its folder
  // need not be. Nothing may be called afterwards.
  absl::StatusOr<std::vector<uint32_t>> Finish();

 private:
  struct Output;
  explicit ChecksummedWriter(std::unique_ptr<Output> output);
  absl::Status WriteBlock();

  std::unique_ptr<Output> output_;
  int64_t bytes_ = 0;
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
  // The block after the one that was used last, while it is read on another thread.
  struct Ahead {
    int64_t block = -1;
    char* to = nullptr;       // in `bytes`, or where the caller wants it
    std::vector<char> bytes;  // of a block that is not wanted yet, or only in part
    Worker worker;            // goes first, and waits
  };

  ChecksummedReader(PosixFile file, std::vector<uint32_t> checksums)
      : file_(std::make_unique<const PosixFile>(std::move(file))),
        checksums_(std::move(checksums)) {}
  int64_t BytesOfBlock(int64_t block) const;
  absl::Status CheckBlock(int64_t block, absl::Span<const char> bytes) const;
  // Begins to read a block to `to`, or, if that is null, to keep it.
  void ReadAhead(int64_t block, char* to);
  // Waits for what is being read ahead; true: it was `block`, and its bytes are at ahead_->to.
  absl::StatusOr<bool> TakeAhead(int64_t block);
  // Not checked yet.
  absl::Status Bring(int64_t block, char* to);
  absl::Status BringToKeep(int64_t block);

  std::unique_ptr<const PosixFile> file_;
  std::vector<uint32_t> checksums_;
  std::vector<char> kept_;
  int64_t kept_block_ = -1;
  int64_t last_block_ = -1;  // that was used
  std::unique_ptr<Ahead> ahead_;
};

}  // namespace zero
