// The memory, or the file, that offloaded state lies in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "io/disk_file.h"
#include "io/disk_queue.h"
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
  // Folders of dead runs that Create has removed, of all ranks: which of them finds one is chance.
  const std::vector<std::string>& removed() const { return removed_; }
  // Where a segment's offloaded weights begin in the file.
  int64_t weights_on_disk(int unit, int segment) const;

  // Elements [first, first + n) of one section of what is offloaded of a segment's slice; an empty
  // section stands for the weights. To and from memory of the host: what lies in memory is copied
  // on `stream`; a disk is read and written before the call returns, and what was enqueued for it
  // must have run.
  absl::Status Read(const Stream& stream, int unit, int segment, std::optional<Section> section,
                    int64_t first, int64_t n, void* to) const;
  absl::Status Write(const Stream& stream, int unit, int segment, std::optional<Section> section,
                     int64_t first, int64_t n, const void* from) const;

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
  Buffer records_;
  Buffer weights_;
  std::unique_ptr<OffloadFolder> folder_;
  std::vector<std::string> removed_;
  std::optional<DiskFile> file_;
  std::unique_ptr<DiskQueue> queue_;  // of Read and Write
};

}  // namespace zero
