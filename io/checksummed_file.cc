#include "io/checksummed_file.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "device/status.h"
#include "io/aligned_bytes.h"
#include "io/crc32c.h"

namespace zero {
namespace {

// Null if there is none.
AlignedBytes NewBlock() { return AllocateAligned(kChecksumBlock); }

// The worker that writes never waits for one that is filled.
constexpr size_t kBlocksInFlight = 3;

constexpr int64_t kSyncAhead = 8 * kChecksumBlock;

int64_t Blocks(int64_t bytes) {
  return bytes / kChecksumBlock + (bytes % kChecksumBlock != 0 ? 1 : 0);
}

}  // namespace

// The file, the block that is filled and the one that is written. Stays where it is.
struct ChecksummedWriter::Output {
  explicit Output(PosixFile opened) : file(std::move(opened)), bypasses(file.Bypass(true)) {
    std::generate(blocks.begin(), blocks.end(), NewBlock);
  }

  absl::Status Write(const char* block, int64_t offset) {
    const absl::Span<const char> bytes(block, static_cast<size_t>(kChecksumBlock));
    absl::Status status = file.WriteAt(offset, bytes);
    if (bypasses && absl::IsInvalidArgument(status)) {
      // Some file systems only say so now.
      UseCache();
      status = file.WriteAt(offset, bytes);
    }
    const int64_t end = offset + kChecksumBlock;
    // Where the cache is used the disk works while the next blocks are made.
    if (!bypasses && end % kSyncAhead == 0) file.WillSync(end - kSyncAhead, kSyncAhead);
    return status;
  }
  void UseCache() {
    if (bypasses) file.Bypass(false);
    bypasses = false;
  }

  PosixFile file;
  bool bypasses;
  std::array<AlignedBytes, kBlocksInFlight> blocks;  // filled, and written, in turns
  size_t filling = 0;
  Worker worker;  // goes first, and waits
};

ChecksummedWriter::ChecksummedWriter(std::unique_ptr<Output> output) : output_(std::move(output)) {}
ChecksummedWriter::ChecksummedWriter(ChecksummedWriter&&) noexcept = default;
ChecksummedWriter::~ChecksummedWriter() = default;

absl::StatusOr<ChecksummedWriter> ChecksummedWriter::Create(const std::string& path) {
  ZERO_ASSIGN_OR_RETURN(PosixFile file, PosixFile::CreateNew(path));
  auto output = std::make_unique<Output>(std::move(file));
  for (const AlignedBytes& block : output->blocks) {
    if (block == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": no memory for ", kChecksumBlock, " bytes to write it from"));
    }
  }
  return ChecksummedWriter(std::move(output));
}

absl::Status ChecksummedWriter::Append(absl::Span<const char> bytes) {
  while (error_.ok() && !bytes.empty()) {
    const int64_t filled = bytes_ % kChecksumBlock;
    const auto piece = bytes.subspan(0, static_cast<size_t>(kChecksumBlock - filled));
    std::memcpy(output_->blocks[output_->filling].get() + filled, piece.data(), piece.size());
    bytes_ += static_cast<int64_t>(piece.size());
    bytes.remove_prefix(piece.size());
    if (bytes_ % kChecksumBlock == 0) error_ = WriteBlock();
  }
  return error_;
}

absl::Status ChecksummedWriter::WriteBlock() {
  const char* const block = output_->blocks[output_->filling].get();
  checksums_.push_back(Crc32c(0, {block, static_cast<size_t>(kChecksumBlock)}));
  output_->worker.Add([output = output_.get(), block, offset = bytes_ - kChecksumBlock] {
    return output->Write(block, offset);
  });
  output_->filling = (output_->filling + 1) % kBlocksInFlight;
  return output_->worker.Wait(kBlocksInFlight - 1);  // for the next one
}

absl::StatusOr<std::vector<uint32_t>> ChecksummedWriter::Finish() {
  const absl::Status written = output_->worker.Wait();
  if (error_.ok()) error_ = written;
  ZERO_RETURN_IF_ERROR(error_);
  const int64_t rest = bytes_ % kChecksumBlock;
  if (rest > 0) {
    output_->UseCache();  // no multiple of anything
    const absl::Span<const char> bytes(output_->blocks[output_->filling].get(),
                                       static_cast<size_t>(rest));
    checksums_.push_back(Crc32c(0, bytes));
    error_ = output_->file.WriteAt(bytes_ - rest, bytes);
    ZERO_RETURN_IF_ERROR(error_);
  }
  error_ = output_->file.Sync();
  ZERO_RETURN_IF_ERROR(error_);
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

void ChecksummedReader::ReadAhead(int64_t block, char* to) {
  if (ahead_ == nullptr) ahead_ = std::make_unique<Ahead>();
  (void)ahead_->worker.Wait();  // nobody wants it any more
  const absl::Span<char> out(to, static_cast<size_t>(BytesOfBlock(block)));
  if (to == nullptr) ahead_->bytes.resize(out.size());
  ahead_->block = block;
  ahead_->to = to != nullptr ? to : ahead_->bytes.data();
  ahead_->worker.Add([file = file_.get(), block, to = ahead_->to, size = out.size()] {
    return file->ReadAt(block * kChecksumBlock, absl::MakeSpan(to, size));
  });
}

absl::StatusOr<bool> ChecksummedReader::TakeAhead(int64_t block) {
  if (ahead_ == nullptr || std::exchange(ahead_->block, -1) != block) return false;
  ZERO_RETURN_IF_ERROR(ahead_->worker.Wait());
  return true;
}

absl::Status ChecksummedReader::Bring(int64_t block, char* to) {
  const auto size = static_cast<size_t>(BytesOfBlock(block));
  ZERO_ASSIGN_OR_RETURN(const bool there, TakeAhead(block));
  if (!there) return file_->ReadAt(block * kChecksumBlock, absl::MakeSpan(to, size));
  if (ahead_->to != to) std::memcpy(to, ahead_->to, size);
  return absl::OkStatus();
}

absl::Status ChecksummedReader::BringToKeep(int64_t block) {
  kept_block_ = -1;
  ZERO_ASSIGN_OR_RETURN(const bool there, TakeAhead(block));
  if (there) {
    kept_.swap(ahead_->bytes);
    return absl::OkStatus();
  }
  kept_.resize(static_cast<size_t>(BytesOfBlock(block)));
  return file_->ReadAt(block * kChecksumBlock, absl::MakeSpan(kept_));
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
    if (block != kept_block_) {
      const bool whole = static_cast<int64_t>(piece.size()) == BytesOfBlock(block);
      ZERO_RETURN_IF_ERROR(whole ? Bring(block, piece.data()) : BringToKeep(block));
      // The disk works while this block is checked and used.
      const int64_t next = block + 1;
      const bool in_order = block == last_block_ + 1 || end > until;
      if (in_order && next < Blocks(file_->size()) && next != kept_block_) {
        const bool next_whole = end >= next * kChecksumBlock + BytesOfBlock(next);
        ReadAhead(next, next_whole ? piece.data() + piece.size() : nullptr);
      }
      const absl::Status status =
          CheckBlock(block, whole ? absl::Span<const char>(piece) : absl::MakeConstSpan(kept_));
      if (!status.ok()) {
        // It may be on its way to memory of the caller.
        if (ahead_ != nullptr) (void)TakeAhead(ahead_->block);
        return status;
      }
      last_block_ = block;
      if (!whole) kept_block_ = block;
    }
    if (block == kept_block_) {
      std::memcpy(piece.data(), kept_.data() + (offset - begin), piece.size());
    }
    out.remove_prefix(piece.size());
    offset = until;
  }
  return absl::OkStatus();
}

absl::Status ChecksummedReader::Verify(
    const std::function<void(int64_t done, int64_t total)>& progress) {
  // What is on the disk now.
  kept_block_ = last_block_ = -1;
  if (ahead_ != nullptr) (void)TakeAhead(ahead_->block);
  const int64_t blocks = Blocks(file_->size());
  for (int64_t block = 0; block < blocks; ++block) {
    ZERO_RETURN_IF_ERROR(BringToKeep(block));
    if (block + 1 < blocks) ReadAhead(block + 1, nullptr);
    ZERO_RETURN_IF_ERROR(CheckBlock(block, kept_));
    if (progress) progress(block * kChecksumBlock + BytesOfBlock(block), file_->size());
  }
  return absl::OkStatus();
}

}  // namespace zero
