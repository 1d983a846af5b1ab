// A file of chunks that is filled or read through in order, a little at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "io/disk_file.h"
#include "io/disk_queue.h"
#include "io/worker.h"

namespace zero {

// Bytes of a file that move at once. They begin at a multiple of kDiskAlignment, and the file has
// those after them up to the next multiple for nothing else.
struct DiskChunk {
  int64_t offset = 0;
  int64_t bytes = 0;
  int next = -1;  // the chunk that is used after this one; -1: none
};

// Holds a few chunks in memory: what is read has been read ahead, what is written goes to the disk
// when the chunk after it is begun, and threads of its own do both while the caller works. Two runs
// of chunks may be gone through in turn, each in its order; any other use is right too, and slower.
// For one thread at a time, and nobody else may write these bytes from Forget until Flush.
class DiskWindow {
 public:
  // Chunks that are held at once: of two runs the one in use and two on their way.
  static constexpr int kFrames = 6;

  // `chunks` in the order of the file; `memory` of kFrames x `frame_bytes`, a multiple of
  // kDiskAlignment, at one. All of it outlives this. kInvalidArgument: a chunk does not fit a
  // frame.
  static absl::StatusOr<std::unique_ptr<DiskWindow>> Create(const DiskFile* file,
                                                            absl::Span<const DiskChunk> chunks,
                                                            char* memory, int64_t frame_bytes);
  ~DiskWindow();  // what was not flushed may be lost

  // Drops what is held, with writes that have not begun, and errors. To be called before the first
  // Read or Write after somebody else may have written.
  void Forget();
  // Bytes as they were written last. Errors as those of DiskQueue; kInvalidArgument: some are in no
  // chunk.
  absl::Status Read(int64_t offset, void* to, int64_t bytes);
  // Copies them. The error of the disk may come with a later Write, or in Flush.
  absl::Status Write(int64_t offset, const void* from, int64_t bytes);
  // How many of the bytes lie in one chunk with the first; 0: that lies in none.
  int64_t InOneChunk(int64_t offset, int64_t bytes) const;
  // Write without the copy, of bytes in one chunk: memory that the caller fills before any other
  // call. They stay there to be read while not more than three other chunks are begun.
  absl::StatusOr<char*> Fill(int64_t offset, int64_t bytes);
  // Returns when all is on the disk that was written, with the first error since Forget.
  absl::Status Flush();

 private:
  struct Part {
    int chunk = 0;
    int64_t begin = 0;  // within it
    int64_t bytes = 0;
  };
  // Bytes of a chunk.
  struct Run {
    int64_t begin = 0;
    int64_t end = 0;
  };
  // Memory of a chunk. While a job of it is under way only that touches it.
  struct Frame {
    char* memory = nullptr;
    int chunk = -1;            // -1: none
    bool loaded = false;       // all of it, or will be when its job is done
    bool used_up = false;      // the chunk after it is in use
    int64_t last_use = 0;      // the larger the later
    std::vector<Run> written;  // not on their way to the disk yet, ascending
    int lane = 0;
    int64_t job = 0;  // of the lane; 0: none under way
    bool job_writes = false;
    absl::Status status;  // of the job
  };
  // A thread that does jobs in their order.
  struct Lane {
    std::unique_ptr<DiskQueue> queue;
    int64_t jobs = 0;
    Worker worker;  // ends first
  };
  // One works while the other one ends, or begins.
  static constexpr int kLanes = 2;

  DiskWindow(const DiskFile* file, absl::Span<const DiskChunk> chunks)
      : file_(file), chunks_(chunks) {}
  int ChunkAt(int64_t offset) const;
  // What of the bytes at `offset` lies in one chunk. kInvalidArgument: nothing does.
  absl::StatusOr<Part> PartAt(int64_t offset, int64_t bytes) const;
  absl::Status ReadPart(const Part& part, char* to);
  // Memory of the part, which counts as written.
  absl::StatusOr<char*> FillPart(const Part& part);
  Frame* Held(int chunk);
  // The frame of a chunk, which is in use from now on.
  Frame& Use(int chunk);
  // It has no job.
  static void Clear(Frame& frame);
  // One that holds nothing any more. Null: all hold what is still used, and it is not `needed`.
  Frame* Take(bool needed);
  // Begin what may go on when they return; Await waits for it.
  void Load(Frame& frame, int chunk);
  void Store(Frame& frame);
  void ReadAhead(int chunk);
  void Start(Frame& frame, bool writes, std::vector<DiskRange> ranges);
  void Await(Frame& frame);

  const DiskFile* const file_;
  const absl::Span<const DiskChunk> chunks_;
  std::vector<Frame> frames_;
  int64_t uses_ = 0;
  absl::Status failure_;  // of a write
  std::vector<Lane> lanes_;
  size_t next_lane_ = 0;
};

}  // namespace zero
