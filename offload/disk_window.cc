#include "offload/disk_window.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero {
namespace {

// Chunks of a run that are read before they are asked for.
constexpr int kAhead = 2;

}  // namespace

absl::StatusOr<std::unique_ptr<DiskWindow>> DiskWindow::Create(const DiskFile* file,
                                                               absl::Span<const DiskChunk> chunks,
                                                               char* memory, int64_t frame_bytes) {
  std::unique_ptr<DiskWindow> window(new DiskWindow(file, chunks));
  for (const DiskChunk& chunk : chunks) {
    if (chunk.bytes > 0 && PaddedForDisk(chunk.bytes) <= frame_bytes) continue;
    return absl::InvalidArgumentError(absl::StrCat(file->path(), ": a chunk of ", chunk.bytes,
                                                   " bytes at byte ", chunk.offset,
                                                   " does not fit a frame of ", frame_bytes));
  }
  window->frames_.resize(kFrames);
  for (int i = 0; i < kFrames; ++i) window->frames_[i].memory = memory + i * frame_bytes;
  window->lanes_ = std::vector<Lane>(kLanes);
  for (Lane& lane : window->lanes_) {
    ZERO_ASSIGN_OR_RETURN(lane.queue, DiskQueue::Create());
  }
  return window;
}

DiskWindow::~DiskWindow() = default;

int DiskWindow::ChunkAt(int64_t offset) const {
  const auto after =
      std::upper_bound(chunks_.begin(), chunks_.end(), offset,
                       [](int64_t at, const DiskChunk& chunk) { return at < chunk.offset; });
  return static_cast<int>(after - chunks_.begin()) - 1;
}

DiskWindow::Frame* DiskWindow::Held(int chunk) {
  const auto found = std::find_if(frames_.begin(), frames_.end(),
                                  [chunk](const Frame& frame) { return frame.chunk == chunk; });
  return found == frames_.end() ? nullptr : &*found;
}

void DiskWindow::Start(Frame& frame, bool writes, std::vector<DiskRange> ranges) {
  Lane& lane = lanes_[next_lane_];
  frame.lane = static_cast<int>(next_lane_);
  next_lane_ = (next_lane_ + 1) % lanes_.size();
  frame.job = ++lane.jobs;
  frame.job_writes = writes;
  frame.status = absl::OkStatus();
  lane.worker.Add([this, &frame, writes, queue = lane.queue.get(), moved = std::move(ranges)] {
    frame.status = writes ? queue->Write(*file_, moved) : queue->Read(*file_, moved);
    return absl::OkStatus();
  });
}

void DiskWindow::Await(Frame& frame) {
  if (frame.job == 0) return;
  Lane& lane = lanes_[static_cast<size_t>(frame.lane)];
  (void)lane.worker.Wait(static_cast<size_t>(lane.jobs - frame.job));
  frame.job = 0;
  if (frame.status.ok()) return;
  if (frame.job_writes) {
    failure_.Update(frame.status);
  } else {
    frame.loaded = false;
  }
}

void DiskWindow::Clear(Frame& frame) {
  char* const memory = frame.memory;
  frame = Frame();
  frame.memory = memory;
}

void DiskWindow::Load(Frame& frame, int chunk) {
  frame.chunk = chunk;
  frame.loaded = true;
  const DiskChunk& where = chunks_[static_cast<size_t>(chunk)];
  Start(frame, /*writes=*/false, {{where.offset, frame.memory, PaddedForDisk(where.bytes)}});
}

void DiskWindow::Store(Frame& frame) {
  if (frame.written.empty()) return;
  Await(frame);
  const DiskChunk& where = chunks_[static_cast<size_t>(frame.chunk)];
  std::vector<DiskRange> ranges;
  for (Run& run : frame.written) {
    if (run.end == where.bytes) {
      // A whole block, so that the rest of it does not have to be read first.
      run.end = PaddedForDisk(where.bytes);
      std::memset(frame.memory + where.bytes, 0, static_cast<size_t>(run.end - where.bytes));
    }
    ranges.push_back({where.offset + run.begin, frame.memory + run.begin, run.end - run.begin});
  }
  frame.written.clear();
  Start(frame, /*writes=*/true, std::move(ranges));
}

DiskWindow::Frame* DiskWindow::Take(bool needed) {
  // The first that is free, then what is used up and on the disk, then what was used long ago.
  const auto rank = [](const Frame& frame) {
    if (frame.chunk < 0) return 0;
    if (frame.written.empty() && frame.used_up) return 1;
    return 2;
  };
  Frame* best = nullptr;
  for (Frame& frame : frames_) {
    const auto before = [&](const Frame& a, const Frame& b) {
      return rank(a) != rank(b) ? rank(a) < rank(b) : a.last_use < b.last_use;
    };
    if (best == nullptr || before(frame, *best)) best = &frame;
  }
  if (!needed && rank(*best) == 2) return nullptr;
  Store(*best);
  Await(*best);
  Clear(*best);
  return best;
}

DiskWindow::Frame& DiskWindow::Use(int chunk) {
  for (Frame& frame : frames_) {
    if (frame.chunk < 0 || frame.chunk == chunk) continue;
    if (chunks_[static_cast<size_t>(frame.chunk)].next != chunk) continue;
    Store(frame);
    frame.used_up = true;
  }
  Frame* frame = Held(chunk);
  if (frame == nullptr) {
    frame = Take(/*needed=*/true);
    frame->chunk = chunk;
  }
  frame->used_up = false;
  frame->last_use = ++uses_;
  return *frame;
}

void DiskWindow::ReadAhead(int chunk) {
  for (int i = 0; i < kAhead; ++i) {
    chunk = chunks_[static_cast<size_t>(chunk)].next;
    if (chunk < 0) return;
    if (Held(chunk) != nullptr) continue;
    Frame* const frame = Take(/*needed=*/false);
    if (frame == nullptr) return;
    // Not before one that is in use.
    frame->last_use = uses_;
    Load(*frame, chunk);
  }
}

absl::StatusOr<DiskWindow::Part> DiskWindow::PartAt(int64_t offset, int64_t bytes) const {
  const int chunk = ChunkAt(offset);
  if (chunk >= 0) {
    const DiskChunk& where = chunks_[static_cast<size_t>(chunk)];
    const Part part{chunk, offset - where.offset,
                    std::min(bytes, where.offset + where.bytes - offset)};
    if (part.bytes > 0) return part;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(file_->path(), ": byte ", offset, " is in no chunk"));
}

absl::Status DiskWindow::Read(int64_t offset, void* to, int64_t bytes) {
  char* const out = static_cast<char*>(to);
  for (int64_t done = 0; done < bytes;) {
    ZERO_ASSIGN_OR_RETURN(const Part part, PartAt(offset + done, bytes - done));
    ZERO_RETURN_IF_ERROR(ReadPart(part, out + done));
    done += part.bytes;
  }
  return absl::OkStatus();
}

absl::Status DiskWindow::ReadPart(const Part& part, char* to) {
  Frame& frame = Use(part.chunk);
  if (!frame.loaded) {
    // What was written of it is read again.
    Store(frame);
    Await(frame);
    ZERO_RETURN_IF_ERROR(failure_);
    Load(frame, part.chunk);
  }
  ReadAhead(part.chunk);
  Await(frame);
  if (!frame.loaded) return frame.status;
  std::memcpy(to, frame.memory + part.begin, static_cast<size_t>(part.bytes));
  return absl::OkStatus();
}

absl::Status DiskWindow::Write(int64_t offset, const void* from, int64_t bytes) {
  const char* const in = static_cast<const char*>(from);
  for (int64_t done = 0; done < bytes;) {
    ZERO_ASSIGN_OR_RETURN(const Part part, PartAt(offset + done, bytes - done));
    ZERO_ASSIGN_OR_RETURN(char* const memory, FillPart(part));
    std::memcpy(memory, in + done, static_cast<size_t>(part.bytes));
    done += part.bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<char*> DiskWindow::Fill(int64_t offset, int64_t bytes) {
  ZERO_ASSIGN_OR_RETURN(const Part part, PartAt(offset, bytes));
  if (part.bytes == bytes) return FillPart(part);
  return absl::InvalidArgumentError(absl::StrCat(file_->path(), ": ", bytes, " bytes at byte ",
                                                 offset, " do not lie in one chunk"));
}

int64_t DiskWindow::InOneChunk(int64_t offset, int64_t bytes) const {
  const absl::StatusOr<Part> part = PartAt(offset, bytes);
  return part.ok() ? part->bytes : 0;
}

absl::StatusOr<char*> DiskWindow::FillPart(const Part& part) {
  Frame& frame = Use(part.chunk);
  if (!frame.written.empty() && frame.written.back().end > part.begin)
    Store(frame);  // not in order
  Await(frame);
  ZERO_RETURN_IF_ERROR(failure_);
  if (!frame.written.empty() && frame.written.back().end == part.begin) {
    frame.written.back().end += part.bytes;
  } else {
    frame.written.push_back({part.begin, part.begin + part.bytes});
  }
  return frame.memory + part.begin;
}

absl::Status DiskWindow::Flush() {
  for (Frame& frame : frames_) Store(frame);
  for (Frame& frame : frames_) Await(frame);
  return failure_;
}

void DiskWindow::Forget() {
  for (Frame& frame : frames_) {
    Await(frame);
    Clear(frame);
  }
  failure_ = absl::OkStatus();
}

}  // namespace zero
