// Tensors of any dtype for tests of the model's operations, and how they are compared.
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

#include "device/device.h"
#include "device/dtype.h"
#include "examples/llama/cuda_products.h"
#include "examples/llama/element.h"
#include "examples/llama/ops.h"
#include "tests/catch.h"
#include "tests/examples/test_device.h"

namespace zero::llama {

using Doubles = std::vector<double>;

// Values in [-1, 1) that every dtype holds exactly.
inline Doubles RandomValues(size_t n, unsigned seed, double scale = 1) {
  std::mt19937 generator(seed);
  Doubles values(n);
  for (double& value : values) {
    value = scale * (static_cast<int>(generator() % 256) - 128) / 128.0;
  }
  return values;
}

// Memory of the test device, with what it takes to fill and read it from here. Each use waits.
class DeviceBytes {
 public:
  explicit DeviceBytes(size_t bytes) : session_(Session::Get()) {
    const auto size = static_cast<int64_t>(bytes);
    auto device = session_->device().Allocate(size, MemoryCategory::kOther, "tensor of a test");
    REQUIRE_OK(device.status());
    device_ = *std::move(device);
    auto host = session_->device().AllocateHost(size, MemoryCategory::kHostStaging, "its mirror");
    REQUIRE_OK(host.status());
    host_ = *std::move(host);
  }
  DeviceBytes(const DeviceBytes& other) : DeviceBytes(static_cast<size_t>(other.device_.bytes())) {
    if (device_.bytes() > 0) std::memcpy(host_.data(), other.Read(), other.device_.bytes());
    Write();
  }
  DeviceBytes(DeviceBytes&&) = default;
  DeviceBytes& operator=(DeviceBytes&&) = default;
  DeviceBytes& operator=(const DeviceBytes& other) { return *this = DeviceBytes(other); }

  char* data() const { return device_.as<char>(); }
  size_t bytes() const { return static_cast<size_t>(device_.bytes()); }
  // The mirror, for Write.
  char* mirror() const { return host_.as<char>(); }
  void Write() const { session_->Copy(device_.data(), host_.data(), device_.bytes()); }
  // The mirror, as the device has it now.
  const char* Read() const {
    session_->Copy(host_.data(), device_.data(), device_.bytes());
    return mirror();
  }

 private:
  std::shared_ptr<Session> session_;
  Buffer device_;
  Buffer host_;
};

// An array of plain values on the test device.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : bytes_(values.size() * sizeof(T)) {
    if (!values.empty()) std::memcpy(bytes_.mirror(), values.data(), bytes_.bytes());
    bytes_.Write();
  }
  T* data() const { return reinterpret_cast<T*>(bytes_.data()); }
  size_t size() const { return bytes_.bytes() / sizeof(T); }
  std::vector<T> values() const {
    const auto* first = reinterpret_cast<const T*>(bytes_.Read());
    return std::vector<T>(first, first + size());
  }

 private:
  DeviceBytes bytes_;
};

// Where a pass puts its loss.
class DeviceLoss {
 public:
  LossSum* data() const { return array_.data(); }
  LossSum get() const { return array_.values().front(); }

 private:
  DeviceArray<LossSum> array_{{LossSum{-1, -1}}};
};

// Values of any dtype on the test device. NaN where none are given.
class Tensor {
 public:
  Tensor(size_t n, DType dtype) : dtype_(dtype), bytes_(n * SizeOf(dtype)) {
    std::fill(bytes_.mirror(), bytes_.mirror() + bytes_.bytes(), char(0xFF));
    bytes_.Write();
  }
  Tensor(const Doubles& values, DType dtype)
      : dtype_(dtype), bytes_(values.size() * SizeOf(dtype)) {
    for (size_t i = 0; i < values.size(); ++i) Put(i, values[i]);
    bytes_.Write();
  }
  // Memory of the device.
  char* data() { return bytes_.data(); }
  const char* data() const { return bytes_.data(); }
  float* floats() { return reinterpret_cast<float*>(data()); }
  const float* floats() const { return reinterpret_cast<const float*>(data()); }

  size_t size() const { return bytes_.bytes() / SizeOf(dtype_); }
  void Set(size_t i, double value) {
    bytes_.Read();
    Put(i, value);
    bytes_.Write();
  }
  Doubles values() const {
    const char* from = bytes_.Read();
    Doubles values(size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = WithElementType(dtype_, [&](auto element) {
        return ToFloat(reinterpret_cast<const decltype(element)*>(from)[i]);
      });
    }
    return values;
  }
  bool operator==(const Tensor& other) const {
    return dtype_ == other.dtype_ && size() == other.size() &&
           (size() == 0 || std::memcmp(bytes_.Read(), other.bytes_.Read(), bytes_.bytes()) == 0);
  }

 private:
  void Put(size_t i, double value) {
    WithElementType(dtype_, [&](auto element) {
      using T = decltype(element);
      reinterpret_cast<T*>(bytes_.mirror())[i] = FromFloat<T>(static_cast<float>(value));
    });
  }

  DType dtype_;
  DeviceBytes bytes_;
};

// A device of the kind that is tested, with one stream; Run waits for what was enqueued.
class Runner {
 public:
  explicit Runner(ThreadPool* pool = nullptr)
      : session_(Session::Get()), device_(NewTestDevice(pool)) {
    auto stream = device_->CreateStream("test");
    REQUIRE_OK(stream.status());
    stream_ = *std::move(stream);
    if (device_->kind() == DeviceKind::kHost) return;
    auto workspace = device_->Allocate(1 << 12, MemoryCategory::kOther, "workspace of products");
    REQUIRE_OK(workspace.status());
    workspace_ = *std::move(workspace);
    auto products = CudaProducts::Create(device_.get(), workspace_.data(), workspace_.bytes());
    REQUIRE_OK(products.status());
    products_ = *std::move(products);
  }
  ~Runner() { stream_->Synchronize().IgnoreError(); }
  Device& device() { return *device_; }
  const Stream& stream() { return *stream_; }
  CudaProducts* products() { return products_.get(); }  // null on the host
  void Run(const absl::Status& enqueued) {
    REQUIRE_OK(enqueued);
    REQUIRE_OK(stream_->Synchronize());
  }

 private:
  std::shared_ptr<Session> session_;
  std::unique_ptr<Device> device_;
  Buffer workspace_;
  std::unique_ptr<CudaProducts> products_;
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

// Checks `left` against `right` to a part of the largest value: `fp32` or `bf16`, or for fp16,
// which has three bits more, an eighth of that.
inline void CheckNear(const std::string& what, const Doubles& left, const Doubles& right,
                      DType dtype, double fp32 = 2e-6, double bf16 = 1e-2) {
  const double difference = Difference(left, right);
  CAPTURE(what, difference, Name(dtype));
  CHECK(difference <= (dtype == DType::kF32 ? fp32 : dtype == DType::kBF16 ? bf16 : bf16 / 8));
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
