#include "zero/offload/offload_store.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "device/host_device.h"
#include "device/status.h"
#include "zero/rank_exchange.h"

namespace zero {
namespace {

// Of memory, by one thread at a time.
constexpr int64_t kClearedBytes = int64_t{1} << 21;

// What is lost, if anything, is for whoever knows what was moved.
absl::Status OfDisk(const absl::Status& status) {
  return status.ok() ? status : absl::UnavailableError(status.message());
}

// Sections in chunks of at most `most` bytes, each with the next one of its kind.
std::vector<DiskChunk> ChunksOf(const std::vector<DiskSection>& sections, int64_t most) {
  std::vector<DiskChunk> chunks;
  std::map<std::optional<Section>, int> last;
  for (const DiskSection& section : sections) {
    for (int64_t done = 0; done < section.bytes; done += most) {
      const auto chunk = static_cast<int>(chunks.size());
      const auto before = last.emplace(section.section, -1).first;
      if (before->second >= 0) chunks[static_cast<size_t>(before->second)].next = chunk;
      before->second = chunk;
      chunks.push_back({section.offset + done, std::min(most, section.bytes - done), -1});
    }
  }
  return chunks;
}

}  // namespace

HostMemory HostMemoryOf(const Offload& offload) {
  return offload.pin_memory ? HostMemory::kPinned : HostMemory::kPageable;
}

absl::StatusOr<std::unique_ptr<OffloadStore>> OffloadStore::Create(const Context& context) {
  std::unique_ptr<OffloadStore> store(new OffloadStore(context));
  const Offload& config = context.plan->config.offload;
  const OffloadPlan& plan = context.plan->offload;
  // Of the updates, whose threads these are.
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream,
                        context.device->CreateHostStream("clear-states"));
  const auto allocate = [&](Buffer& buffer, int64_t bytes, MemoryCategory category,
                            const char* what) -> absl::Status {
    ZERO_ASSIGN_OR_RETURN(
        buffer, context.device->AllocateHost(bytes, category, what, HostMemoryOf(config)));
    // Gaps of records are never written. Who touches a page first makes the system find one.
    ParallelFor(HostPool(*stream), bytes, kClearedBytes, [&](int64_t begin, int64_t end) {
      std::memset(buffer.bytes_at(begin), 0, static_cast<size_t>(end - begin));
    });
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
  store->failure_ = std::make_shared<FirstError>();
  ZERO_ASSIGN_OR_RETURN(store->folder_, OffloadFolder::Create(config.nvme_path, context.rank()));
  // What dead runs left is gone before any rank sets room aside.
  ZERO_RETURN_IF_ERROR(store->ShareRemoved());
  ZERO_ASSIGN_OR_RETURN(DiskFile file,
                        DiskFile::Create(store->folder_->File("state"), plan.disk_bytes));
  store->file_ = std::move(file);
  store->chunks_ = ChunksOf(
      DiskSections(context.plan->config, context.plan->layout, context.plan->moments, plan),
      plan.disk_frame_bytes);
  ZERO_ASSIGN_OR_RETURN(store->frames_,
                        context.device->AllocateHost(
                            DiskWindow::kFrames * plan.disk_frame_bytes, MemoryCategory::kHostSlots,
                            "states on their way to a disk", HostMemory::kPageable));
  ZERO_ASSIGN_OR_RETURN(
      store->window_, DiskWindow::Create(&*store->file_, store->chunks_, store->frames_.bytes_at(0),
                                         plan.disk_frame_bytes));
  return store;
}

absl::Status OffloadStore::ShareRemoved() {
  ZERO_ASSIGN_OR_RETURN(RankExchange exchange,
                        RankExchange::Create(context_.device, context_.group, "removed folders"));
  // No path has a zero in it.
  constexpr char kBetween = '\0';
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                        exchange.Run(*context_.communication, kStateTransfer,
                                     absl::StrJoin(folder_->removed(), std::string(1, kBetween))));
  for (const std::string& text : texts) {
    for (const std::string& path :
         std::vector<std::string>(absl::StrSplit(text, kBetween, absl::SkipEmpty()))) {
      removed_.push_back(path);
    }
  }
  return absl::OkStatus();
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
  const Segment& where = context_.unit(unit).segments[segment];
  if (!section.has_value()) return SizeOf(where.dtype);
  return SectionBytes(context_.plan->config, where, context_.plan->moments, *section);
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
                             : OfDisk(window_->Read(range.offset, out, range.bytes)));
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
                             : OfDisk(window_->Write(range.offset, in, range.bytes)));
  }
  return absl::OkStatus();
}

int64_t OffloadStore::FillsAtOnce(int unit, int segment, Section section, int64_t first,
                                  int64_t n) const {
  const std::vector<Range> ranges = Find(unit, segment, section, first, n);
  if (window_ == nullptr || ranges.empty() || ranges[0].memory != nullptr) return 0;
  return window_->InOneChunk(ranges[0].offset, ranges[0].bytes) / 4;
}

absl::StatusOr<float*> OffloadStore::Fill(int unit, int segment, Section section, int64_t first,
                                          int64_t n) const {
  const std::vector<Range> ranges = Find(unit, segment, section, first, n);
  const absl::StatusOr<char*> memory = window_->Fill(ranges[0].offset, n * 4);
  if (!memory.ok()) return OfDisk(memory.status());
  return reinterpret_cast<float*>(*memory);
}

void OffloadStore::Forget() const {
  if (window_ != nullptr) window_->Forget();
}

absl::Status OffloadStore::Flush() const {
  return window_ == nullptr ? absl::OkStatus() : OfDisk(window_->Flush());
}

}  // namespace zero
