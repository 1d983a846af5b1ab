// Work space of a thread, kept from one operation to the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zero::llama {

// Hands out pieces of one block of floats, each aligned to a cache line.
class Scratch {
 public:
  static constexpr size_t kAlignment = 16;  // floats

  // Forgets all pieces and makes room for `floats`, each piece rounded up to kAlignment.
  void Reset(size_t floats) {
    if (block_.size() < floats + kAlignment) block_.resize(floats + kAlignment);
    const auto address = reinterpret_cast<uintptr_t>(block_.data()) / sizeof(float);
    next_ = block_.data() + (kAlignment - address % kAlignment) % kAlignment;
  }
  float* Take(size_t floats) {
    float* piece = next_;
    next_ += RoundUp(floats);
    return piece;
  }
  static constexpr size_t RoundUp(size_t floats) {
    return (floats + kAlignment - 1) / kAlignment * kAlignment;
  }

 private:
  std::vector<float> block_;
  float* next_ = nullptr;
};

}  // namespace zero::llama
