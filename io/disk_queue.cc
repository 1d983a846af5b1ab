#include "io/disk_queue.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero {
namespace {

constexpr int64_t kLargestBlock = int64_t{1} << 30;
constexpr int kLargestDepth = 4096;
constexpr int kMostThreads = 256;
// Of copies, in blocks: enough that some are under way, and not much memory.
constexpr int64_t kBounceBlocks = 4;

absl::Status CheckOption(const char* name, int64_t value, int64_t most, int64_t unit) {
  if (value >= unit && value <= most && value % unit == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("DiskQueue: ", name, " is ", value,
                                                 "; it must be a multiple of ", unit, " from ",
                                                 unit, " to ", most));
}

absl::Status CheckRange(const DiskFile& file, const DiskRange& range) {
  if (range.offset >= 0 && range.bytes >= 0 && range.bytes <= file.size() - range.offset) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", range.bytes, " bytes at byte ",
                                                 range.offset, " do not lie in a file of ",
                                                 file.size()));
}

bool HasFailed(const DiskBlock& block) { return block.failed(); }

DiskRange Part(const DiskRange& range, int64_t begin, int64_t end) {
  return {begin, static_cast<char*>(range.memory) + (begin - range.offset), end - begin};
}

bool InMemoryFor(const DiskFile& file, const DiskRange& range) {
  return reinterpret_cast<uintptr_t>(range.memory) %
             static_cast<uintptr_t>(file.memory_alignment()) ==
         0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DiskQueue>> DiskQueue::Create(const Options& options) {
  ZERO_RETURN_IF_ERROR(
      CheckOption("block_bytes", options.block_bytes, kLargestBlock, kDiskAlignment));
  ZERO_RETURN_IF_ERROR(CheckOption("depth", options.depth, kLargestDepth, 1));
  ZERO_RETURN_IF_ERROR(CheckOption("threads", options.threads, kMostThreads, 1));
  return std::unique_ptr<DiskQueue>(new DiskQueue(options));
}

DiskQueue::DiskQueue(const Options& options) : options_(options) {
  if (!options.io_uring) {
    UseThreads("io_uring was not asked for");
    return;
  }
  absl::StatusOr<std::unique_ptr<DiskRing>> ring = DiskRing::Create(options.depth);
  if (!ring.ok()) {
    UseThreads(std::string(ring.status().message()));
    return;
  }
  ring_ = *std::move(ring);
  SetWay(DiskWay::kRing, absl::StrCat("io_uring, ", options.depth, " requests of ",
                                      options.block_bytes, " bytes at once"));
}

DiskQueue::~DiskQueue() = default;

void DiskQueue::UseThreads(const std::string& why) {
  ring_ = nullptr;
  threads_ = std::make_unique<ThreadPool>(options_.threads);
  SetWay(DiskWay::kThreads,
         absl::StrCat("pread and pwrite on ", options_.threads, " threads: ", why));
}

void DiskQueue::SetWay(DiskWay way, std::string note) {
  const std::lock_guard<std::mutex> lock(mutex_);
  way_ = way;
  note_ = std::move(note);
}

DiskWay DiskQueue::way() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return way_;
}

std::string DiskQueue::note() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return note_;
}

absl::Status DiskQueue::Read(const DiskFile& file, absl::Span<const DiskRange> ranges) {
  return Transfer(file, false, ranges);
}

absl::Status DiskQueue::Write(const DiskFile& file, absl::Span<const DiskRange> ranges) {
  return Transfer(file, true, ranges);
}

absl::Status DiskQueue::Read(const DiskFile& file, int64_t offset, void* to, int64_t bytes) {
  const DiskRange range = {offset, to, bytes};
  return Read(file, absl::MakeConstSpan(&range, 1));
}

absl::Status DiskQueue::Write(const DiskFile& file, int64_t offset, const void* from,
                              int64_t bytes) {
  const DiskRange range = {offset, const_cast<void*>(from), bytes};
  return Write(file, absl::MakeConstSpan(&range, 1));
}

absl::Status DiskQueue::Transfer(const DiskFile& file, bool writes,
                                 absl::Span<const DiskRange> ranges) {
  for (const DiskRange& range : ranges) ZERO_RETURN_IF_ERROR(CheckRange(file, range));
  const int64_t sector = file.offset_alignment();
  blocks_.clear();
  std::vector<DiskRange> copied;
  std::vector<DiskRange> borders;
  for (const DiskRange& range : ranges) {
    if (range.bytes == 0) continue;
    const int64_t end = range.offset + range.bytes;
    const int64_t first = (range.offset + sector - 1) / sector * sector;
    const int64_t last = end / sector * sector;
    if (first > range.offset) borders.push_back(Part(range, range.offset, std::min(first, end)));
    if (last > first) {
      const DiskRange whole = Part(range, first, last);
      if (InMemoryFor(file, whole)) {
        Cut(whole);
      } else {
        copied.push_back(whole);
      }
    }
    if (end > last && last >= first) borders.push_back(Part(range, last, end));
  }
  ZERO_RETURN_IF_ERROR(Run(file, writes));
  for (const DiskRange& range : copied) ZERO_RETURN_IF_ERROR(Copied(file, writes, range));
  // One after the other: two ranges may share a sector.
  for (const DiskRange& range : borders) ZERO_RETURN_IF_ERROR(Border(file, writes, range));
  return absl::OkStatus();
}

absl::Status DiskQueue::NeedBounce() {
  if (bounce_ == nullptr) bounce_ = AllocateAligned(kBounceBlocks * options_.block_bytes);
  if (bounce_ != nullptr) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for ", kBounceBlocks * options_.block_bytes,
                   " bytes that transfers which are not aligned go through"));
}

absl::Status DiskQueue::Copied(const DiskFile& file, bool writes, DiskRange range) {
  ZERO_RETURN_IF_ERROR(NeedBounce());
  const int64_t end = range.offset + range.bytes;
  while (range.offset < end) {
    range.bytes = std::min(end - range.offset, kBounceBlocks * options_.block_bytes);
    copied_bytes_.fetch_add(range.bytes, std::memory_order_relaxed);
    const auto bytes = static_cast<size_t>(range.bytes);
    if (writes) std::memcpy(bounce_.get(), range.memory, bytes);
    Cut({range.offset, bounce_.get(), range.bytes});
    ZERO_RETURN_IF_ERROR(Run(file, writes));
    if (!writes) std::memcpy(range.memory, bounce_.get(), bytes);
    range.offset += range.bytes;
    range.memory = static_cast<char*>(range.memory) + range.bytes;
  }
  return absl::OkStatus();
}

absl::Status DiskQueue::Border(const DiskFile& file, bool writes, const DiskRange& range) {
  ZERO_RETURN_IF_ERROR(NeedBounce());
  const int64_t sector = file.offset_alignment();
  const int64_t begin = range.offset / sector * sector;
  const DiskRange whole = {begin, bounce_.get(), sector};
  copied_bytes_.fetch_add(range.bytes, std::memory_order_relaxed);
  char* const part = bounce_.get() + (range.offset - begin);
  Cut(whole);
  ZERO_RETURN_IF_ERROR(Run(file, /*writes=*/false));
  if (!writes) {
    std::memcpy(range.memory, part, static_cast<size_t>(range.bytes));
    return absl::OkStatus();
  }
  std::memcpy(part, range.memory, static_cast<size_t>(range.bytes));
  Cut(whole);
  return Run(file, /*writes=*/true);
}

void DiskQueue::Cut(const DiskRange& range) {
  for (int64_t done = 0; done < range.bytes; done += options_.block_bytes) {
    DiskBlock block;
    block.offset = range.offset + done;
    block.memory = static_cast<char*>(range.memory) + done;
    block.bytes = std::min(range.bytes - done, options_.block_bytes);
    blocks_.push_back(block);
  }
}

absl::Status DiskQueue::Run(const DiskFile& file, bool writes) {
  if (ring_ != nullptr) {
    const absl::Status status = ring_->Run(absl::MakeSpan(blocks_), file, writes);
    if (!status.ok()) UseThreads(std::string(status.message()));
  }
  if (ring_ == nullptr) RunOnThreads(file, writes);
  const auto failed = std::find_if(blocks_.begin(), blocks_.end(), HasFailed);
  const absl::Status status =
      failed == blocks_.end() ? absl::OkStatus() : BlockError(*failed, file, writes);
  blocks_.clear();
  return status;
}

void DiskQueue::RunOnThreads(const DiskFile& file, bool writes) {
  std::atomic<bool> failed{std::any_of(blocks_.begin(), blocks_.end(), HasFailed)};
  threads_->ParallelFor(static_cast<int64_t>(blocks_.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && !failed.load(std::memory_order_relaxed); ++i) {
      DiskBlock& block = blocks_[static_cast<size_t>(i)];
      TransferBlock(block, file, writes);
      if (block.failed()) failed.store(true, std::memory_order_relaxed);
    }
  });
}

}  // namespace zero
