// Plain requests of io_uring that read a file and write it back: what a disk does both ways at
// once, where the file lies. Disks differ by twice from file to file.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace zero::bench {

// Reads at least `reads` bytes of the file at `path`, 64 requests of 1 MiB at a time, with O_DIRECT
// where that works, over the file in order and again from its beginning, and meanwhile writes about
// `writes` bytes of what it has read to where it was; `writes` <= `reads`. The file is what it was
// then; nobody else may write it meanwhile. Returns the bytes of both a second. kInvalidArgument:
// the file has less than 1 MiB. kUnimplemented: no io_uring.
absl::StatusOr<double> CopyInPlace(const std::string& path, int64_t reads, int64_t writes);

}  // namespace zero::bench
