// What the tests of the kernels share: a stream, arrays of elements of any type, ways to run.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "device/device.h"
#include "kernels/element_type.h"
#include "kernels/kernels.h"
#include "tests/catch.h"
#include "tests/kernels/kernel_backend.h"

namespace zero {

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
    const uint16_t bits = static_cast<uint16_t>(Bits(i));
    return type_ == DType::kBF16 ? ToFloat(BFloat16{bits}) : ToFloat(Float16{bits});
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
    SetBits(i, type_ == DType::kF32    ? BitsOf(x)
               : type_ == DType::kBF16 ? ToBFloat16(x).bits
                                       : ToFloat16(x).bits);
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
  friend class KernelRun;
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

inline std::vector<DType> Types() { return {DType::kF32, DType::kBF16, DType::kF16}; }

// A stream of the device that this program is about. Kernels get memory of that device, which takes
// the place of the test's own from On to Finish.
class KernelRun {
 public:
  explicit KernelRun(ThreadPool* pool = nullptr) : backend_(NewKernelBackend(pool)) {
    absl::StatusOr<std::unique_ptr<Stream>> stream = device().CreateStream("test");
    REQUIRE_OK(stream.status());
    stream_ = *std::move(stream);
  }

  Device& device() { return backend_->device(); }
  const Stream& stream() const { return *stream_; }
  // Kernels that were enqueued.
  int64_t kernels() const { return backend_->kernels(); }

  // Where the device has what is at data[0 .. count - 1] when first asked.
  template <class T>
  T* On(T* data, int64_t count = 1) {
    return static_cast<T*>(OnBytes(const_cast<std::remove_const_t<T>*>(data),
                                   count * static_cast<int64_t>(sizeof(T))));
  }
  template <class T>
  T* On(std::vector<T>& data) {
    return On(data.data(), static_cast<int64_t>(data.size()));
  }
  // The first element; the guards come along.
  void* On(Elements& x) {
    return On(x.bytes_.data(), static_cast<int64_t>(x.bytes_.size())) + x.begin_ * SizeOf(x.type_);
  }
  float* FloatsOn(Elements& x) { return static_cast<float*>(On(x)); }

  // Waits for the stream and brings everything back.
  void Finish() {
    REQUIRE_OK(stream_->Synchronize());
    for (const Mirror& mirror : mirrors_) {
      REQUIRE_OK(device().Copy(*stream_, mirror.host, mirror.buffer.data(), mirror.buffer.bytes()));
    }
    if (mirrors_.empty()) return;
    REQUIRE_OK(stream_->Synchronize());
    mirrors_.clear();
  }

 private:
  struct Mirror {
    void* host;
    Buffer buffer;
  };

  void* OnBytes(void* data, int64_t bytes) {
    if (device().kind() == DeviceKind::kHost || bytes == 0) return data;
    for (const Mirror& mirror : mirrors_) {
      if (mirror.host == data) return mirror.buffer.data();
    }
    absl::StatusOr<Buffer> buffer = device().Allocate(bytes, MemoryCategory::kOther, "test");
    REQUIRE_OK(buffer.status());
    REQUIRE_OK(device().Copy(*stream_, buffer->data(), data, bytes));
    mirrors_.push_back({data, *std::move(buffer)});
    return mirrors_.back().buffer.data();
  }

  const std::unique_ptr<KernelBackend> backend_;
  std::unique_ptr<Stream> stream_;
  std::vector<Mirror> mirrors_;
};

// Calls body(name) with each way of running that this program's device has.
template <class Body>
void ForEachVariant(const Body& body) {
  const std::vector<std::string> variants = KernelVariants();
  REQUIRE(!variants.empty());
  for (const std::string& variant : variants) {
    SelectKernelVariant(variant);
    body(variant);
  }
  SelectKernelVariant(variants.front());
}

}  // namespace zero
