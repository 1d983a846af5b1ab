// What the tests of the kernels share: a host stream, arrays of elements of any type, SIMD targets.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/host_device.h"
#include "kernels/bfloat16_math.h"
#include "kernels/kernels.h"
#include "kernels/simd_targets.h"
#include "tests/catch.h"

namespace zero {

// A host device with one stream; counts the operations of kernels that ran.
class HostRun {
 public:
  explicit HostRun(ThreadPool* pool = nullptr) : device_(Options(pool)) {
    auto stream = device_.CreateStream("test");
    REQUIRE_OK(stream.status());
    stream_ = *std::move(stream);
  }
  const Stream& stream() const { return *stream_; }
  void Finish() { REQUIRE_OK(stream_->Synchronize()); }
  int64_t operations() const { return operations_; }

 private:
  HostDevice::Options Options(ThreadPool* pool) {
    HostDevice::Options options;
    options.pool = pool;
    options.hook = [this](const std::string&, const char* operation) {
      if (std::strcmp(operation, "record") != 0) ++operations_;  // Finish records an event
      return absl::OkStatus();
    };
    return options;
  }

  std::atomic<int64_t> operations_{0};
  HostDevice device_;
  std::unique_ptr<Stream> stream_;
};

// `n` elements that start `offset` elements after an aligned address, with guards around them.
class Elements {
 public:
  Elements(DType type, int64_t n, int64_t offset = 0)
      : type_(type), n_(n), begin_(kGuard + offset), bytes_((begin_ + n + kGuard) * SizeOf(type)) {
    std::memset(bytes_.data(), kGuardByte, bytes_.size());
  }
  Elements(DType type, const std::vector<float>& values, int64_t offset = 0)
      : Elements(type, static_cast<int64_t>(values.size()), offset) {
    for (int64_t i = 0; i < n_; ++i) Set(i, values[i]);
  }

  DType type() const { return type_; }
  int64_t size() const { return n_; }
  void* data() { return bytes_.data() + begin_ * SizeOf(type_); }
  float* floats() { return static_cast<float*>(data()); }
  float Get(int64_t i) const {
    if (type_ == DType::kF32) return FloatOf(Bits(i));
    return ToFloat(BFloat16{static_cast<uint16_t>(Bits(i))});
  }
  uint32_t Bits(int64_t i) const {
    uint32_t bits = 0;
    std::memcpy(&bits, bytes_.data() + (begin_ + i) * SizeOf(type_), SizeOf(type_));
    return bits;
  }
  void SetBits(int64_t i, uint32_t bits) {
    std::memcpy(bytes_.data() + (begin_ + i) * SizeOf(type_), &bits, SizeOf(type_));
  }
  // Rounds to the type.
  void Set(int64_t i, float x) {
    SetBits(i, type_ == DType::kF32 ? BitsOf(x) : ToBFloat16(x).bits);
  }
  // Everything, guards included.
  const std::vector<unsigned char>& bytes() const { return bytes_; }

  // "" or where this differs from `expected`: in a guard, or in bits that are not two NaNs.
  std::string Difference(const Elements& expected) const {
    if (bytes_ == expected.bytes_) return "";
    for (int64_t i = 0; i < n_; ++i) {
      const float a = Get(i);
      const float b = expected.Get(i);
      if (Bits(i) != expected.Bits(i) && !(a != a && b != b)) {
        return "element " + std::to_string(i) + " is " + std::to_string(a) + ", expected " +
               std::to_string(b);
      }
    }
    const int64_t end = (begin_ + n_) * SizeOf(type_);
    for (int64_t i = 0; i < static_cast<int64_t>(bytes_.size()); ++i) {
      const bool guard = i < begin_ * SizeOf(type_) || i >= end;
      if (guard && bytes_[i] != kGuardByte) return "byte " + std::to_string(i) + " around them";
    }
    return "";
  }

 private:
  static constexpr int64_t kGuard = 32;
  static constexpr unsigned char kGuardByte = 0xA5;

  DType type_;
  int64_t n_;
  int64_t begin_;
  std::vector<unsigned char> bytes_;
};

// Values of both signs over many binades.
inline std::vector<float> RandomFloats(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(n);
  for (float& x : values) {
    const float fraction = std::ldexp(static_cast<float>(random() >> 8), -24) - 0.5f;
    x = std::ldexp(fraction, static_cast<int>(random() % 12) - 8);
  }
  return values;
}

inline std::vector<int64_t> Sizes() { return {0, 1, 3, 57, 63, 64, 65, 2047, 2048, 2049, 100003}; }

inline std::vector<DType> Types() { return {DType::kF32, DType::kBF16}; }

// Calls body(name) with the kernels limited to each target that this CPU has.
template <class Body>
void ForEachTarget(const Body& body) {
  int targets = 0;
  for (const char* name : {"scalar", "ssse3", "sse4", "avx2", "avx512"}) {
    REQUIRE_OK(LimitSimdTargets(name));
    if (SimdTargetName() != name) continue;
    ++targets;
    body(std::string(name));
  }
  REQUIRE_OK(LimitSimdTargets("best"));
  REQUIRE(targets >= 1);
}

}  // namespace zero
