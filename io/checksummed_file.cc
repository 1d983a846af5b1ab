#include "io/checksummed_file.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "device/status.h"
#include "io/crc32c.h"

namespace zero {
namespace {

constexpr int64_t kSyncAhead = 8 * kChecksumBlock;

int64_t Blocks(int64_t bytes) {
  return bytes / kChecksumBlock + (bytes % kChecksumBlock != 0 ? 1 : 0);
}

}  // namespace

absl::StatusOr<ChecksummedWriter> ChecksummedWriter::Create(const std::string& path) {
  ZERO_ASSIGN_OR_RETURN(PosixFile file, PosixFile::CreateNew(path));
  return ChecksummedWriter(std::move(file));
}

absl::Status ChecksummedWriter::Append(absl::Span<const char> bytes) {
  ZERO_RETURN_IF_ERROR(error_);
  // A block at a time, so that the system copies what the checksum has brought into the cache.
  while (!bytes.empty()) {
    const int64_t room = kChecksumBlock - bytes_ % kChecksumBlock;
    const auto piece = bytes.subspan(0, static_cast<size_t>(room));
    crc_ = Crc32c(crc_, piece);
    error_ = file_.WriteAt(bytes_, piece);
    ZERO_RETURN_IF_ERROR(error_);
    bytes_ += static_cast<int64_t>(piece.size());
    if (bytes_ % kChecksumBlock == 0) checksums_.push_back(std::exchange(crc_, 0));
    // The disk works while the next blocks are made.
    if (bytes_ % kSyncAhead == 0) file_.WillSync(bytes_ - kSyncAhead, kSyncAhead);
    bytes.remove_prefix(piece.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> ChecksummedWriter::Finish() {
  ZERO_RETURN_IF_ERROR(error_);
  ZERO_RETURN_IF_ERROR(file_.Sync());
  if (bytes_ % kChecksumBlock != 0) checksums_.push_back(crc_);
  return std::move(checksums_);
}

absl::StatusOr<ChecksummedReader> ChecksummedReader::Open(const std::string& path, int64_t bytes,
                                                          std::vector<uint32_t> checksums) {
  ZERO_ASSIGN_OR_RETURN(PosixFile file, PosixFile::OpenToRead(path));
  if (file.size() != bytes) {
    return absl::DataLossError(absl::StrCat(path, ": has ", file.size(), " bytes, not ", bytes,
                                            file.size() < bytes ? ": it is cut short" : ""));
  }
  if (static_cast<int64_t>(checksums.size()) != Blocks(bytes)) {
    return absl::DataLossError(absl::StrCat(path, ": there are ", checksums.size(),
                                            " checksums for its ", Blocks(bytes), " blocks of ",
                                            kChecksumBlock, " bytes"));
  }
  file.WillReadInOrder();
  return ChecksummedReader(std::move(file), std::move(checksums));
}

int64_t ChecksummedReader::BytesOfBlock(int64_t block) const {
  return std::min(kChecksumBlock, file_->size() - block * kChecksumBlock);
}

absl::Status ChecksummedReader::CheckBlock(int64_t block, absl::Span<const char> bytes) const {
  const uint32_t found = Crc32c(0, bytes);
  const uint32_t wanted = checksums_[static_cast<size_t>(block)];
  if (found == wanted) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat(
      "%s: the %d bytes from byte %d on are damaged: their CRC32C is %08x, not %08x", path(),
      bytes.size(), block * kChecksumBlock, found, wanted));
}

absl::Status ChecksummedReader::ReadBlock(int64_t block, absl::Span<char> out) const {
  ZERO_RETURN_IF_ERROR(file_->ReadAt(block * kChecksumBlock, out));
  return CheckBlock(block, out);
}

absl::Status ChecksummedReader::KeepBlock(int64_t block) {
  if (kept_block_ == block) return absl::OkStatus();
  const bool follows = block > 0 && kept_block_ == block - 1;
  kept_block_ = -1;
  if (next_ != nullptr && next_->block == block) {
    next_->block = -1;
    ZERO_RETURN_IF_ERROR(next_->read.get());
    kept_.swap(next_->bytes);
    ZERO_RETURN_IF_ERROR(CheckBlock(block, kept_));
  } else {
    kept_.resize(static_cast<size_t>(BytesOfBlock(block)));
    ZERO_RETURN_IF_ERROR(ReadBlock(block, absl::MakeSpan(kept_)));
  }
  kept_block_ = block;
  // The disk works while this block is used.
  if (follows && block + 1 < Blocks(file_->size())) ReadNext(block + 1);
  return absl::OkStatus();
}

void ChecksummedReader::ReadNext(int64_t block) {
  if (next_ == nullptr) next_ = std::make_unique<Next>();
  Next* const next = next_.get();
  if (next->read.valid()) next->read.wait();
  next->block = -1;
  next->bytes.resize(static_cast<size_t>(BytesOfBlock(block)));
  try {
    next->read = std::async(std::launch::async, [file = file_, next, block] {
      return file->ReadAt(block * kChecksumBlock, absl::MakeSpan(next->bytes));
    });
    next->block = block;
  } catch (const std::system_error&) {
    // No thread to be had: it is read when it is needed.
  }
}

absl::Status ChecksummedReader::ReadAt(int64_t offset, absl::Span<char> out) {
  const int64_t size = static_cast<int64_t>(out.size());
  if (offset < 0 || offset > file_->size() || size > file_->size() - offset) {
    return absl::OutOfRangeError(absl::StrCat(path(), ": ", size, " bytes from byte ", offset,
                                              " on asked for; it has ", file_->size()));
  }
  const int64_t end = offset + size;
  while (offset < end) {
    const int64_t block = offset / kChecksumBlock;
    const int64_t begin = block * kChecksumBlock;
    const int64_t until = std::min(end, begin + BytesOfBlock(block));
    const auto piece = out.subspan(0, static_cast<size_t>(until - offset));
    if (static_cast<int64_t>(piece.size()) == BytesOfBlock(block) && block != kept_block_) {
      ZERO_RETURN_IF_ERROR(ReadBlock(block, piece));
    } else {
      ZERO_RETURN_IF_ERROR(KeepBlock(block));
      std::memcpy(piece.data(), kept_.data() + (offset - begin), piece.size());
    }
    out.remove_prefix(piece.size());
    offset = until;
  }
  return absl::OkStatus();
}

absl::Status ChecksummedReader::Verify(
    const std::function<void(int64_t done, int64_t total)>& progress) {
  for (int64_t block = 0; block < Blocks(file_->size()); ++block) {
    kept_block_ = -1;  // what is on the disk now
    ZERO_RETURN_IF_ERROR(KeepBlock(block));
    if (progress) progress(block * kChecksumBlock + BytesOfBlock(block), file_->size());
  }
  return absl::OkStatus();
}

}  // namespace zero
