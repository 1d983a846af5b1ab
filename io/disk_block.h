// One request of a DiskQueue, and what the results of the system's calls make of it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "io/disk_file.h"

namespace zero {

// `bytes` of a file from byte `offset` on, to or from `memory`.
struct DiskBlock {
  int64_t offset = 0;
  char* memory = nullptr;
  int64_t bytes = 0;

  int64_t done = 0;    // the next call begins there
  int64_t moved = 0;   // what came through, the part of a sector that is moved again included
  int error = 0;       // errno that ended it
  bool ended = false;  // nothing more came
  int fruitless = 0;   // calls in a row that got it no further

  bool finished() const { return done == bytes || failed(); }
  bool failed() const { return error != 0 || ended; }
};

// Takes note of one call for the rest of the block: `result` bytes, or a negative errno. Short
// transfers, EINTR and EAGAIN leave it unfinished, to be called for again. A short one that ends
// amid a sector of a direct file begins again with that sector.
void Advance(DiskBlock& block, const DiskFile& file, int64_t result);

// Calls pread or pwrite until the block is finished.
void TransferBlock(DiskBlock& block, const DiskFile& file, bool writes);

// Of a block that failed: path, range and the system's words, or how much was wanted and came; for
// a full disk how much is free.
absl::Status BlockError(const DiskBlock& block, const DiskFile& file, bool writes);

}  // namespace zero
