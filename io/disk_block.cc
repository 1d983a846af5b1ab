#include "io/disk_block.h"

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "io/file_calls.h"
#include "io/posix_file.h"

namespace zero {
namespace {

// The system's answer is final when it is the same this often.
constexpr int kMostFruitless = 1000;

}  // namespace

void Advance(DiskBlock& block, const DiskFile& file, int64_t result) {
  if (result == -EINTR) return;
  if (result < 0) {
    if (result == -EAGAIN && ++block.fruitless < kMostFruitless) return;
    block.error = static_cast<int>(-result);
    return;
  }
  block.moved = block.done + result;
  const int64_t whole = block.moved == block.bytes
                            ? block.moved
                            : block.moved - block.moved % file.offset_alignment();
  if (whole > block.done) {
    block.done = whole;
    block.fruitless = 0;
  } else if (result == 0 || ++block.fruitless == kMostFruitless) {
    block.ended = true;
  }
}

void TransferBlock(DiskBlock& block, const DiskFile& file, bool writes) {
  while (!block.finished()) {
    char* const memory = block.memory + block.done;
    const auto count = static_cast<size_t>(block.bytes - block.done);
    const off_t offset = block.offset + block.done;
    const ssize_t result = writes ? Files().Pwrite(file.descriptor(), memory, count, offset)
                                  : Files().Pread(file.descriptor(), memory, count, offset);
    Advance(block, file, result < 0 ? -errno : result);
  }
}

absl::Status BlockError(const DiskBlock& block, const DiskFile& file, bool writes) {
  std::string what =
      absl::StrCat(writes ? "writing " : "reading ", block.bytes, " bytes at byte ", block.offset);
  if (block.ended) {
    return absl::DataLossError(absl::StrCat(file.path(), ": ", what, ": only ", block.moved,
                                            writes ? " were taken" : " came"));
  }
  if (block.error == ENOSPC || block.error == EDQUOT) what += FreeThere(file.path());
  return PosixError(file.path(), what, block.error);
}

}  // namespace zero
