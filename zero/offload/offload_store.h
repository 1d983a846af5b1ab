// The memory, or the file, that offloaded state lies in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "io/disk_file.h"
#include "offload/disk_window.h"
#include "offload/offload_folder.h"
#include "zero/context.h"
#include "zero/offload/offload_plan.h"

namespace zero {

// What states and slots are allocated as.
HostMemory HostMemoryOf(const Offload& offload);

class OffloadStore {
 public:
  // Allocates and zeroes what the plan says. kResourceExhausted; errors of the disk, with its path.
  static absl::StatusOr<std::unique_ptr<OffloadStore>> Create(const Context& context);

  // A piece's record, and a segment's offloaded weights, in memory of the host; null where they are
  // on a disk, or there are none.
  char* record(const OffloadPiece& piece) const;
  char* weights(int unit, int segment) const;
  // Null where nothing is on a disk.
  const DiskFile* file() const { return file_.has_value() ? &*file_ : nullptr; }
  // What Context::disk_failed points to; null where nothing is on a disk.
  int32_t* failed() const { return failed_.as<int32_t>(); }
  // Set before that is.
  const std::shared_ptr<FirstError>& failure() const { return failure_; }
  // Folders of dead runs that Create has removed, of all ranks: which of them finds one is chance.
  const std::vector<std::string>& removed() const { return removed_; }
  // Where a segment's offloaded weights begin in the file.
  int64_t weights_on_disk(int unit, int segment) const;

  // Elements [first, first + n) of one section of what is offloaded of a segment's slice; an empty
  // section stands for the weights. To and from memory of the host: what lies in memory is copied
  // on `stream`. A disk is read ahead and written behind, before these return and after: call
  // Forget before the first of them, when what was enqueued for the disk has run, and Flush after
  // the last Write. Many elements one after the other are as fast as the disk.
  absl::Status Read(const Stream& stream, int unit, int segment, std::optional<Section> section,
                    int64_t first, int64_t n, void* to) const;
  absl::Status Write(const Stream& stream, int unit, int segment, std::optional<Section> section,
                     int64_t first, int64_t n, const void* from) const;
  // Write without the copy, of a section in fp32: memory that `n` elements are to be filled in
  // before any other call; n is at most what FillsAtOnce gives for it, which is 0 where they are
  // not on a disk. They stay there while as many elements of others are written.
  int64_t FillsAtOnce(int unit, int segment, Section section, int64_t first, int64_t n) const;
  absl::StatusOr<float*> Fill(int unit, int segment, Section section, int64_t first,
                              int64_t n) const;
  void Forget() const;
  // Returns when the disk has what was written, with the first error.
  absl::Status Flush() const;

 private:
  // A run of bytes that lie together.
  struct Range {
    char* memory = nullptr;  // or, where that is null,
    int64_t offset = 0;      // in the file
    int64_t first = 0;       // elements after the first of the range
    int64_t bytes = 0;
  };
  explicit OffloadStore(const Context& context) : context_(context) {}
  // [collective] Returns when every rank has removed what it finds.
  absl::Status ShareRemoved();
  const OffloadPlan& plan() const { return context_.plan->offload; }
  int64_t ElementBytes(int unit, int segment, std::optional<Section> section) const;
  std::vector<Range> Find(int unit, int segment, std::optional<Section> section, int64_t first,
                          int64_t n) const;

  const Context& context_;
  Buffer failed_;  // int32_t
  std::shared_ptr<FirstError> failure_;
  Buffer records_;
  Buffer weights_;
  std::unique_ptr<OffloadFolder> folder_;
  std::vector<std::string> removed_;
  std::optional<DiskFile> file_;
  std::vector<DiskChunk> chunks_;  // of the file
  Buffer frames_;
  std::unique_ptr<DiskWindow> window_;  // of Read and Write
};

}  // namespace zero
