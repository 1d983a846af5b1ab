// Sections of records, and slices of weights, begin where a disk takes them without a copy.
#pragma once

#include <cstdint>

#include "io/disk_file.h"

namespace zero {

constexpr int64_t PaddedForDisk(int64_t bytes) {
  return (bytes + kDiskAlignment - 1) / kDiskAlignment * kDiskAlignment;
}

}  // namespace zero
