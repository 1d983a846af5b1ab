// Partitions that are all there and longer than 32 bits count. Needs a GPU with much free memory.
#include <cstdio>
#include <limits>
#include <vector>

#include "device/cuda_device.h"
#include "kernels/adam_math.h"
#include "kernels/element_type.h"
#include "kernels/kernels.h"
#include "tests/catch.h"

namespace zero {
namespace {

constexpr int64_t k2To31 = int64_t{1} << 31;
constexpr int64_t kElements = k2To31 + 3;
constexpr int64_t kAt[] = {0, 1, 12345, k2To31 / 2 + 5, k2To31 - 1, k2To31, k2To31 + 1, k2To31 + 2};
constexpr auto kAtCount = static_cast<int64_t>(std::size(kAt));

class Large {
 public:
  Large() {
    absl::StatusOr<std::unique_ptr<CudaDevice>> made = CudaDevice::Create();
    REQUIRE_OK(made.status());
    device_ = *std::move(made);
    absl::StatusOr<std::unique_ptr<Stream>> created = device_->CreateStream("large");
    REQUIRE_OK(created.status());
    stream_ = *std::move(created);
  }

  // Otherwise the case is left out, and says so.
  bool Fits(int64_t bytes) {
    const absl::StatusOr<int64_t> free_bytes = device_->FreeBytes();
    REQUIRE_OK(free_bytes.status());
    if (*free_bytes > bytes + (int64_t{1} << 30)) return true;
    std::printf("LEFT OUT: it needs %lld bytes on the GPU, %lld are free\n",
                static_cast<long long>(bytes), static_cast<long long>(*free_bytes));
    return false;
  }
  Buffer New(int64_t bytes) {
    absl::StatusOr<Buffer> buffer = device_->Allocate(bytes, MemoryCategory::kOther, "large");
    REQUIRE_OK(buffer.status());
    return *std::move(buffer);
  }
  template <class T>
  void Set(const Buffer& buffer, int64_t i, T value) {
    REQUIRE_OK(device_->Copy(*stream_, buffer.as<T>() + i, &value, sizeof(T)));
    REQUIRE_OK(stream_->Synchronize());
  }
  template <class T>
  T Get(const Buffer& buffer, int64_t i) {
    T value;
    REQUIRE_OK(device_->Copy(*stream_, &value, buffer.as<T>() + i, sizeof(T)));
    REQUIRE_OK(stream_->Synchronize());
    return value;
  }
  const Stream& stream() { return *stream_; }
  Device& device() { return *device_; }

 private:
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Stream> stream_;
};

// Of the k-th place.
float ValueOf(int array, int64_t k) {
  return static_cast<float>(array + 1) * 0.37f + static_cast<float>(k) * 0.11f;
}

TEST_CASE("Norm: 2^31 + 3 elements are counted exactly", "[kernels][large]") {
  Large large;
  const int64_t scratch_bytes = NormChunks(kElements) * static_cast<int64_t>(sizeof(NormPartial));
  if (!large.Fits(kElements * 4 + scratch_bytes)) return;
  const Buffer x = large.New(kElements * 4);
  const Buffer scratch = large.New(scratch_bytes);
  const Buffer out = large.New(sizeof(NormPartial));
  const auto norm = [&] {
    REQUIRE_OK(Norm(large.stream(), x.data(), DType::kF32, kElements, scratch.as<NormPartial>(),
                    out.as<NormPartial>()));
    return large.Get<NormPartial>(out, 0);
  };
  REQUIRE_OK(Fill(large.stream(), x.data(), DType::kF32, 1, kElements));
  NormPartial got = norm();
  CHECK(got.sum_of_squares == static_cast<double>(kElements));
  CHECK(got.non_finite == 0);
  for (const int64_t at : {int64_t{0}, k2To31 - 1, k2To31, k2To31 + 1, kElements - 1}) {
    large.Set(x, at, 3.0f);
  }
  got = norm();
  CHECK(got.sum_of_squares == static_cast<double>(kElements + 5 * 8));
  large.Set(x, k2To31 + 1, std::numeric_limits<float>::infinity());
  large.Set(x, kElements - 1, std::numeric_limits<float>::quiet_NaN());
  got = norm();
  CHECK(got.non_finite == 2);
  CHECK(got.first_non_finite == k2To31 + 1);
}

TEST_CASE("Cast: 2^31 + 3 elements are rounded and nothing after them changes",
          "[kernels][large]") {
  Large large;
  constexpr int64_t kGuard = 64;
  if (!large.Fits(kElements * 6 + kGuard * 2)) return;
  const Buffer in = large.New(kElements * 4);
  const Buffer out = large.New((kElements + kGuard) * 2);
  REQUIRE_OK(Fill(large.stream(), in.data(), DType::kF32, 0.1f, kElements));
  REQUIRE_OK(large.device().Fill(large.stream(), out.data(), 0xA5, out.bytes()));
  for (int64_t k = 0; k < kAtCount; ++k) large.Set(in, kAt[k], ValueOf(0, k));
  REQUIRE_OK(Cast(large.stream(), in.data(), DType::kF32, out.data(), DType::kBF16, kElements));
  for (int64_t k = 0; k < kAtCount; ++k) {
    CAPTURE(kAt[k]);
    CHECK(large.Get<BFloat16>(out, kAt[k]).bits == ToBFloat16(ValueOf(0, k)).bits);
    if (kAt[k] > 0 && kAt[k] - 1 != kAt[k - 1]) {
      CHECK(large.Get<BFloat16>(out, kAt[k] - 1).bits == ToBFloat16(0.1f).bits);
    }
  }
  CHECK(large.Get<uint16_t>(out, kElements) == 0xA5A5);
  CHECK(large.Get<uint16_t>(out, kElements + kGuard - 1) == 0xA5A5);
}

TEST_CASE("Adam: a partition that holds 2^31 + 3 elements is updated by the formula",
          "[kernels][large]") {
  // Partitions are padded.
  constexpr int64_t kPadded = (kElements + 63) / 64 * 64;
  Large large;
  if (!large.Fits(kPadded * (2 + 3 * 4 + 2) + kPadded / 64)) return;
  const Buffer gradient = large.New(kPadded * 2);
  const Buffer states[] = {large.New(kPadded * 4), large.New(kPadded * 4), large.New(kPadded * 4)};
  const Buffer weight = large.New(kPadded * 2);
  const Buffer groups = large.New(kPadded / 64);
  const Buffer scalars_on = large.New(sizeof(StepScalars));
  const Buffer rows_on = large.New(2 * sizeof(GroupScalars));
  const Stream& stream = large.stream();

  StepScalars scalars;
  scalars.apply = 1;
  scalars.divisor = 8;
  scalars.clip_coefficient = 0.75f;
  scalars.sqrt_bias_correction2 = 0.5f;
  scalars.one_minus_beta1 = static_cast<float>(1 - 0.9);
  GroupScalars rows[2];
  for (int g = 0; g < 2; ++g) {
    rows[g].learning_rate = 1e-3f;
    rows[g].step_size = g == 0 ? 2e-3f : 3e-3f;
    rows[g].keep = g == 0 ? 0.9999f : 1.0f;
    large.Set(rows_on, g, rows[g]);
  }
  large.Set(scalars_on, 0, scalars);
  REQUIRE_OK(large.device().Fill(stream, groups.data(), 0, groups.bytes()));
  large.Set(groups, k2To31 / 64, uint8_t{1});  // the last 64 elements

  constexpr int64_t kOrdinary = 100;  // what the elements at no place have
  REQUIRE_OK(Fill(stream, gradient.data(), DType::kBF16, ValueOf(0, kOrdinary), kPadded));
  for (int s = 0; s < 3; ++s) {
    REQUIRE_OK(Fill(stream, states[s].data(), DType::kF32, ValueOf(s + 1, kOrdinary), kPadded));
  }
  for (int64_t k = 0; k < kAtCount; ++k) {
    large.Set(gradient, kAt[k], ToBFloat16(ValueOf(0, k)));
    for (int s = 0; s < 3; ++s) large.Set(states[s], kAt[k], ValueOf(s + 1, k));
  }

  AdamArguments a;
  a.gradient = gradient.data();
  a.gradient_type = DType::kBF16;
  a.weights.master = states[0].as<float>();
  a.moment1 = states[1].as<float>();
  a.moment2 = states[2].as<float>();
  a.weights.weight = weight.data();
  a.groups = groups.as<uint8_t>();
  a.n = kPadded;
  a.beta2 = 0.999f;
  a.one_minus_beta2 = static_cast<float>(1 - 0.999);
  a.epsilon = 1e-8f;
  a.scalars = scalars_on.as<StepScalars>();
  a.rows = rows_on.as<GroupScalars>();
  REQUIRE_OK(Adam(stream, a));

  const auto check = [&](int64_t at, int64_t k) {
    CAPTURE(at);
    float expected[3];
    for (int s = 0; s < 3; ++s) expected[s] = ValueOf(s + 1, k);
    AdamMath(a, scalars, rows[at >= k2To31 ? 1 : 0], ToFloat(ToBFloat16(ValueOf(0, k))),
             &expected[0], &expected[1], &expected[2]);
    for (int s = 0; s < 3; ++s) CHECK(large.Get<float>(states[s], at) == expected[s]);
    CHECK(large.Get<BFloat16>(weight, at).bits == ToBFloat16(expected[0]).bits);
  };
  for (int64_t k = 0; k < kAtCount; ++k) check(kAt[k], k);
  for (const int64_t at : {int64_t{2}, k2To31 - 2, k2To31 + 3, kPadded - 1}) check(at, kOrdinary);
}

}  // namespace
}  // namespace zero
