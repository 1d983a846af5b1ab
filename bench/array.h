// Arrays of the benchmarks, with values that are known again when a result is checked.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "device/buffer.h"
#include "device/device.h"
#include "device/status.h"
#include "kernels/element_type.h"

namespace zero::bench {

// In [-1, 1), a function of array and index.
inline float Value(int64_t array, int64_t i) {
  uint64_t x = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(array);
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9u;
  return static_cast<float>(static_cast<int64_t>(x >> 40) - (1 << 23)) / (1 << 23);
}

// Elements of any type in device memory, filled from Value(array, i).
class Array {
 public:
  absl::Status Allocate(Device* device, DType type, int64_t n, int64_t array) {
    type_ = type;
    n_ = n;
    array_ = array;
    ZERO_ASSIGN_OR_RETURN(buffer_, device->Allocate(n * SizeOf(type), MemoryCategory::kOther,
                                                    "arrays of the benchmark"));
    Reset();
    return absl::OkStatus();
  }
  void Reset() {
    WithElementType(type_, [this](auto t) {
      for (int64_t i = 0; i < n_; ++i) RoundTo(Value(array_, i), buffer_.as<decltype(t)>() + i);
    });
  }
  // What Reset stored.
  float Initial(int64_t i) const {
    return WithElementType(type_, [&](auto t) {
      decltype(t) rounded;
      RoundTo(Value(array_, i), &rounded);
      return ToFloat(rounded);
    });
  }
  // "" or where an element is not expected(i), rounded.
  template <class Expected>
  std::string Difference(const char* name, const Expected& expected) const {
    std::string difference;
    WithElementType(type_, [&](auto t) {
      using T = decltype(t);
      for (int64_t i = 0; i < n_ && difference.empty(); ++i) {
        T rounded;
        RoundTo(expected(i), &rounded);
        const float got = ToFloat(buffer_.as<T>()[i]);
        if (BitsOf(got) != BitsOf(ToFloat(rounded))) {
          difference = absl::StrCat(name, "[", i, "] is ", got, ", expected ", ToFloat(rounded));
        }
      }
    });
    return difference;
  }
  void* data() const { return buffer_.data(); }
  float* floats() const { return buffer_.as<float>(); }
  DType type() const { return type_; }

 private:
  DType type_ = DType::kF32;
  int64_t n_ = 0;
  int64_t array_ = 0;
  Buffer buffer_;
};

}  // namespace zero::bench
