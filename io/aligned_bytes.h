// Memory that direct transfers take.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace zero {

struct FreeAligned {
  void operator()(char* bytes) const { std::free(bytes); }
};
using AlignedBytes = std::unique_ptr<char, FreeAligned>;

// `bytes`, a multiple of 4,096, at a multiple of it; null if the system has none left.
inline AlignedBytes AllocateAligned(int64_t bytes) {
  return AlignedBytes(static_cast<char*>(std::aligned_alloc(4096, static_cast<size_t>(bytes))));
}

}  // namespace zero
