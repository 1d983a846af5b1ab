// What goes past the system's cache: its alignment, and memory that has it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace zero {

// What is a multiple of this, offset, length and address, goes to any disk without a copy.
inline constexpr int64_t kDiskAlignment = 4096;

// Up to a multiple of it.
constexpr int64_t PaddedForDisk(int64_t bytes) {
  return (bytes + kDiskAlignment - 1) / kDiskAlignment * kDiskAlignment;
}

struct FreeAligned {
  void operator()(char* bytes) const { std::free(bytes); }
};
using AlignedBytes = std::unique_ptr<char, FreeAligned>;

// `bytes`, a multiple of kDiskAlignment, at a multiple of it; null if the system has none left.
inline AlignedBytes AllocateAligned(int64_t bytes) {
  return AlignedBytes(
      static_cast<char*>(std::aligned_alloc(kDiskAlignment, static_cast<size_t>(bytes))));
}

}  // namespace zero
