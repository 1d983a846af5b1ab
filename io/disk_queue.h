// Reads and writes of files in many requests at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "device/thread_pool.h"
#include "io/aligned_bytes.h"
#include "io/disk_block.h"
#include "io/disk_file.h"
#include "io/disk_ring.h"

namespace zero {

// Bytes of a file and where they go to or come from.
struct DiskRange {
  int64_t offset = 0;
  void* memory = nullptr;
  int64_t bytes = 0;
};

// Who transfers: a ring of io_uring or, where there is none, threads.
enum class DiskWay : uint8_t { kRing, kThreads };

// For one thread at a time; several queues may use one file at once. Blocks the caller until all
// that it asked for is done. Any offset, length and address is right; where the file is direct,
// what is not aligned to its needs is copied, through memory of the queue, and sectors that a write
// covers in part are read first: two queues must not write parts of one sector at once.
class DiskQueue {
 public:
  struct Options {
    // Of one request; a multiple of kDiskAlignment. Smaller ones than a disk takes at once: reads
    // and writes of neighbouring queues take turns more often.
    int64_t block_bytes = int64_t{1} << 18;
    int depth = 32;        // requests of io_uring at once
    int threads = 4;       // those at once where there is no io_uring
    bool io_uring = true;  // false: threads on purpose
  };
  // kInvalidArgument: an option is out of its range. That the system has no io_uring is no error.
  static absl::StatusOr<std::unique_ptr<DiskQueue>> Create(const Options& options);
  static absl::StatusOr<std::unique_ptr<DiskQueue>> Create() { return Create(Options()); }
  ~DiskQueue();

  // All of the ranges, which must not overlap, lie within the file (kInvalidArgument, with nothing
  // done) and live until this returns. Short transfers go on. After any other error some of it is
  // done, and the file and the queue may be used again: kDataLoss where the disk fails or the file
  // ends too soon, kResourceExhausted where there is no room, as BlockError says it. What was
  // written is in the file, not yet safe from a power cut.
  absl::Status Read(const DiskFile& file, absl::Span<const DiskRange> ranges);
  absl::Status Write(const DiskFile& file, absl::Span<const DiskRange> ranges);
  absl::Status Read(const DiskFile& file, int64_t offset, void* to, int64_t bytes);
  absl::Status Write(const DiskFile& file, int64_t offset, const void* from, int64_t bytes);

  // Bytes that were copied because offset, length or address was not aligned. From any thread.
  int64_t copied_bytes() const { return copied_bytes_.load(std::memory_order_relaxed); }

  // How it transfers; a ring that fails makes way for threads. From any thread.
  DiskWay way() const;
  // The same in words, and why not by io_uring if it does not: for whoever runs the program.
  std::string note() const;

 private:
  explicit DiskQueue(const Options& options);
  absl::Status Transfer(const DiskFile& file, bool writes, absl::Span<const DiskRange> ranges);
  // Whole sectors.
  absl::Status Copied(const DiskFile& file, bool writes, DiskRange range);
  // Part of one sector.
  absl::Status Border(const DiskFile& file, bool writes, const DiskRange& range);
  // Appends the blocks of a range.
  void Cut(const DiskRange& range);
  // Does what was cut.
  absl::Status Run(const DiskFile& file, bool writes);
  void RunOnThreads(const DiskFile& file, bool writes);
  absl::Status NeedBounce();
  void UseThreads(const std::string& why);
  void SetWay(DiskWay way, std::string note);

  const Options options_;
  std::unique_ptr<DiskRing> ring_;       // null: by threads
  std::unique_ptr<ThreadPool> threads_;  // null: by the ring
  std::vector<DiskBlock> blocks_;
  AlignedBytes bounce_;  // made when it is needed
  std::atomic<int64_t> copied_bytes_{0};
  mutable std::mutex mutex_;
  DiskWay way_ = DiskWay::kThreads;  // guarded by it
  std::string note_;                 // likewise
};

}  // namespace zero
