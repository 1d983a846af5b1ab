// Requests of io_uring to a file and nothing else: what a disk can do.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace zero::bench {

struct DiskSpeed {
  // Bytes a second, alone.
  double read = 0;
  double write = 0;
  // Bytes a second, of one thread that reads while another one writes.
  double read_beside_write = 0;
  double write_beside_read = 0;
  std::string note;  // of what it measured, where that is the system's cache; empty: the disk
};

// Of a file of `bytes` in `folder`, which is removed again: 32 requests of 1 MiB at a time,
// aligned, with O_DIRECT where that works, over the file in order; what is written has been written
// before, since the first time is slower on many file systems. Both at once: each on a half of the
// file, again and again until the slower one is through. kInvalidArgument: `bytes` is no multiple
// of 2 MiB. kUnimplemented: no io_uring.
absl::StatusOr<DiskSpeed> MeasureDisk(const std::string& folder, int64_t bytes);

}  // namespace zero::bench
