// Tensors of either dtype for tests of the model's operations, and how they are compared.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/dtype.h"
#include "device/host_device.h"
#include "examples/llama/element.h"
#include "tests/catch.h"

namespace zero::llama {

using Doubles = std::vector<double>;

// Values in [-1, 1) that fp32 and bf16 hold exactly.
inline Doubles RandomValues(size_t n, unsigned seed, double scale = 1) {
  std::mt19937 generator(seed);
  Doubles values(n);
  for (double& value : values) {
    value = scale * (static_cast<int>(generator() % 256) - 128) / 128.0;
  }
  return values;
}

class Tensor {
 public:
  Tensor(size_t n, DType dtype) : dtype_(dtype), bytes_(n * SizeOf(dtype), char(0xFF)) {}
  Tensor(const Doubles& values, DType dtype) : Tensor(values.size(), dtype) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<float>(values[i]);
      if (dtype == DType::kF32) {
        reinterpret_cast<float*>(data())[i] = value;
      } else {
        reinterpret_cast<Bf16*>(data())[i] = FromFloat<Bf16>(value);
      }
    }
  }
  char* data() { return bytes_.data(); }
  const char* data() const { return bytes_.data(); }
  const float* floats() const { return reinterpret_cast<const float*>(data()); }
  float* floats() { return reinterpret_cast<float*>(data()); }
  size_t size() const { return bytes_.size() / SizeOf(dtype_); }
  Doubles values() const {
    Doubles values(size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] =
          dtype_ == DType::kF32 ? floats()[i] : ToFloat(reinterpret_cast<const Bf16*>(data())[i]);
    }
    return values;
  }
  bool operator==(const Tensor&) const = default;

 private:
  DType dtype_;
  std::vector<char> bytes_;
};

// A host device with one stream; Run waits for what was enqueued.
class Host {
 public:
  explicit Host(ThreadPool* pool = nullptr)
      : device_(HostDevice::Options{.pool = pool, .hook = {}}) {
    stream_ = *device_.CreateStream("test");
  }
  HostDevice& device() { return device_; }
  const Stream& stream() { return *stream_; }
  void Run(const absl::Status& enqueued) {
    REQUIRE_OK(enqueued);
    REQUIRE_OK(stream_->Synchronize());
  }

 private:
  HostDevice device_;
  std::unique_ptr<Stream> stream_;
};

// The largest difference, as a part of the largest value of `right`. NaN counts as infinite.
inline double Difference(const Doubles& left, const Doubles& right) {
  if (left.size() != right.size()) return INFINITY;
  double largest = 1e-30, difference = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    const double d = std::abs(left[i] - right[i]);
    difference = std::isnan(d) ? INFINITY : std::max(difference, d);
    largest = std::max(largest, std::abs(right[i]));
  }
  return difference / largest;
}

// Checks `left` against `right` to a part of the largest value: `fp32` or `bf16`.
inline void CheckNear(const std::string& what, const Doubles& left, const Doubles& right,
                      DType dtype, double fp32 = 2e-6, double bf16 = 1e-2) {
  const double difference = Difference(left, right);
  CAPTURE(what, difference, Name(dtype));
  CHECK(difference <= (dtype == DType::kF32 ? fp32 : bf16));
}

// d f / d x by central differences; f takes x as a whole.
inline Doubles NumericGradient(const std::function<double(const Doubles&)>& f, const Doubles& x) {
  constexpr double kStep = 1e-5;
  Doubles at = x, gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    at[i] = x[i] + kStep;
    const double above = f(at);
    at[i] = x[i] - kStep;
    const double below = f(at);
    at[i] = x[i];
    gradient[i] = (above - below) / (2 * kStep);
  }
  return gradient;
}

// Sum of a b: a scalar to differentiate, whose gradient with respect to b is a.
inline double Dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace zero::llama
