#include "zero/offload/offload_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero {
namespace {

// What is lost, if anything, is for whoever knows what was moved.
absl::Status OfDisk(const absl::Status& status) {
  return status.ok() ? status : absl::UnavailableError(status.message());
}

}  // namespace

HostMemory HostMemoryOf(const Offload& offload) {
  return offload.pin_memory ? HostMemory::kPinned : HostMemory::kPageable;
}

absl::StatusOr<std::unique_ptr<OffloadStore>> OffloadStore::Create(const Context& context) {
  std::unique_ptr<OffloadStore> store(new OffloadStore(context));
  const Offload& config = context.plan->config.offload;
  const OffloadPlan& plan = context.plan->offload;
  const auto allocate = [&](Buffer& buffer, int64_t bytes, MemoryCategory category,
                            const char* what) -> absl::Status {
    ZERO_ASSIGN_OR_RETURN(
        buffer, context.device->AllocateHost(bytes, category, what, HostMemoryOf(config)));
    // Gaps of records are never written.
    if (bytes > 0) std::memset(buffer.data(), 0, static_cast<size_t>(bytes));
    return absl::OkStatus();
  };
  if (config.optimizer == Place::kHost) {
    ZERO_RETURN_IF_ERROR(allocate(store->records_, plan.record_bytes, MemoryCategory::kHostStates,
                                  "offloaded states"));
  }
  if (config.parameters == Place::kHost) {
    ZERO_RETURN_IF_ERROR(allocate(store->weights_, plan.weight_bytes, MemoryCategory::kHostWeights,
                                  "offloaded weights"));
  }
  if (plan.disk_bytes == 0) return store;
  ZERO_ASSIGN_OR_RETURN(store->failed_, context.device->AllocateHost(
                                            kDiskFlagBytes, MemoryCategory::kHostStaging,
                                            "flag of a disk that fails", HostMemory::kReached));
  *store->failed() = 0;
  ZERO_ASSIGN_OR_RETURN(store->folder_, OffloadFolder::Create(config.nvme_path, context.rank()));
  // What dead runs left is gone before any rank sets room aside.
  ZERO_RETURN_IF_ERROR(context.group->Barrier(*context.communication, kStateTransfer));
  ZERO_RETURN_IF_ERROR(context.communication->Synchronize());
  ZERO_ASSIGN_OR_RETURN(DiskFile file,
                        DiskFile::Create(store->folder_->File("state"), plan.disk_bytes));
  store->file_ = std::move(file);
  ZERO_ASSIGN_OR_RETURN(store->queue_, DiskQueue::Create());
  return store;
}

char* OffloadStore::record(const OffloadPiece& piece) const {
  return records_.bytes() == 0 ? nullptr : records_.bytes_at(piece.record);
}

char* OffloadStore::weights(int unit, int segment) const {
  const int64_t offset = plan().weight_offsets[unit][segment];
  return weights_.bytes() == 0 || offset < 0 ? nullptr : weights_.bytes_at(offset);
}

int64_t OffloadStore::weights_on_disk(int unit, int segment) const {
  return plan().disk_weights + plan().weight_offsets[unit][segment];
}

int64_t OffloadStore::ElementBytes(int unit, int segment, std::optional<Section> section) const {
  const Config& config = context_.plan->config;
  const Segment& where = context_.unit(unit).segments[segment];
  if (!section.has_value()) return SizeOf(where.dtype);
  switch (*section) {
    case Section::kGradient:
      return SizeOf(StoredType(config, where));
    case Section::kMaster:
      return MasterBytes(config, where);
    case Section::kMoment1:
    case Section::kMoment2:
      break;
  }
  return 4;
}

std::vector<OffloadStore::Range> OffloadStore::Find(int unit, int s, std::optional<Section> section,
                                                    int64_t first, int64_t n) const {
  const int64_t element = ElementBytes(unit, s, section);
  std::vector<Range> ranges;
  if (n <= 0) return ranges;
  if (!section.has_value()) {
    Range range;
    char* const memory = weights(unit, s);
    if (memory != nullptr) range.memory = memory + first * element;
    range.offset = weights_on_disk(unit, s) + first * element;
    range.bytes = n * element;
    return {range};
  }
  for (const OffloadPiece& piece : plan().pieces[unit]) {
    const int64_t from = std::max(first, piece.first);
    const int64_t to = std::min(first + n, piece.first + piece.count);
    if (piece.segment != s || from >= to) continue;
    const RecordLayout layout =
        MakeRecordLayout(context_.plan->config, context_.unit(unit).segments[s],
                         context_.plan->moments, piece.count);
    const int64_t offset = layout.at(*section) + (from - piece.first) * element;
    Range range;
    char* const memory = record(piece);
    if (memory != nullptr) range.memory = memory + offset;
    range.offset = piece.record + offset;
    range.first = from - first;
    range.bytes = (to - from) * element;
    ranges.push_back(range);
  }
  return ranges;
}

absl::Status OffloadStore::Read(const Stream& stream, int unit, int segment,
                                std::optional<Section> section, int64_t first, int64_t n,
                                void* to) const {
  const int64_t element = ElementBytes(unit, segment, section);
  for (const Range& range : Find(unit, segment, section, first, n)) {
    char* const out = static_cast<char*>(to) + range.first * element;
    ZERO_RETURN_IF_ERROR(range.memory != nullptr
                             ? context_.device->Copy(stream, out, range.memory, range.bytes)
                             : OfDisk(queue_->Read(*file_, range.offset, out, range.bytes)));
  }
  return absl::OkStatus();
}

absl::Status OffloadStore::Write(const Stream& stream, int unit, int segment,
                                 std::optional<Section> section, int64_t first, int64_t n,
                                 const void* from) const {
  const int64_t element = ElementBytes(unit, segment, section);
  for (const Range& range : Find(unit, segment, section, first, n)) {
    const char* const in = static_cast<const char*>(from) + range.first * element;
    ZERO_RETURN_IF_ERROR(range.memory != nullptr
                             ? context_.device->Copy(stream, range.memory, in, range.bytes)
                             : OfDisk(queue_->Write(*file_, range.offset, in, range.bytes)));
  }
  return absl::OkStatus();
}

}  // namespace zero
