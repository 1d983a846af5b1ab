#include "bench/cuda_kernels.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/cuda_device.h"
#include "device/status.h"
#include "kernels/kernels.h"

namespace zero::bench {
namespace {

constexpr int64_t kParts = 4;
constexpr int kRuns = 10;                       // of a sample
constexpr int64_t kPattern = int64_t{1} << 20;  // elements after which values repeat

struct Case {
  std::string kernel;
  std::string types;
  double bytes;
  std::function<absl::Status(const Stream&)> enqueue;
};

class CudaCases {
 public:
  absl::Status Create(int64_t n) {
    n_ = n;
    ZERO_ASSIGN_OR_RETURN(device_, CudaDevice::Create());
    ZERO_ASSIGN_OR_RETURN(stream_, device_->CreateStream("bench"));
    const int64_t chunks = NormChunks(n) * static_cast<int64_t>(sizeof(NormPartial));
    const std::pair<Buffer*, int64_t> buffers[] = {{&wide_, n * 4},
                                                   {&wide_out_, n * 4},
                                                   {&master_, n * 4},
                                                   {&moment1_, n * 4},
                                                   {&moment2_, n * 4},
                                                   {&narrow_out_, n * 2},
                                                   {&groups_, n / 64},
                                                   {&scratch_, chunks},
                                                   {&parts_, kParts * n * 2},
                                                   {&partial_, sizeof(NormPartial)},
                                                   {&scalars_, sizeof(StepScalars)},
                                                   {&rows_, sizeof(GroupScalars)}};
    for (const auto& [buffer, bytes] : buffers) {
      ZERO_ASSIGN_OR_RETURN(
          *buffer, device_->Allocate(bytes, MemoryCategory::kOther, "arrays of the benchmark"));
    }
    ZERO_RETURN_IF_ERROR(Fill());
    AddCases();
    return absl::OkStatus();
  }
  const std::string& gpu() const { return device_->properties().name; }
  const Stream& stream() const { return *stream_; }
  const std::vector<Case>& cases() const { return cases_; }

 private:
  // Values in [-1, 1); second moments are squares.
  absl::Status Fill() {
    std::mt19937 random(1);
    std::vector<float> values(static_cast<size_t>(std::min(n_, kPattern)));
    for (const Buffer* array : {&wide_, &wide_out_, &master_, &moment1_, &moment2_}) {
      for (float& x : values) {
        x = static_cast<float>(static_cast<int32_t>(random() >> 8) - (1 << 23)) / (1 << 23);
        if (array == &moment2_) x = x * x;
      }
      for (int64_t i = 0; i < n_; i += kPattern) {
        ZERO_RETURN_IF_ERROR(device_->Copy(*stream_, array->as<float>() + i, values.data(),
                                           std::min(kPattern, n_ - i) * 4));
      }
      ZERO_RETURN_IF_ERROR(stream_->Synchronize());
    }
    for (int64_t part = 0; part < kParts; ++part) {
      const Buffer& from = part % 2 == 0 ? wide_ : master_;
      ZERO_RETURN_IF_ERROR(Cast(*stream_, from.data(), DType::kF32, parts_.bytes_at(part * n_ * 2),
                                DType::kBF16, n_));
    }
    StepScalars scalars;
    scalars.apply = 1;
    scalars.divisor = 8;
    scalars.clip_coefficient = 0.75f;
    scalars.sqrt_bias_correction2 = 0.5f;
    scalars.beta1 = 0.9f;
    scalars.one_minus_beta1 = static_cast<float>(1 - 0.9);
    GroupScalars row;
    row.learning_rate = 1e-3f;
    row.step_size = 2e-3f;
    row.keep = 0.9999f;
    ZERO_RETURN_IF_ERROR(device_->Copy(*stream_, scalars_.data(), &scalars, sizeof(scalars)));
    ZERO_RETURN_IF_ERROR(device_->Copy(*stream_, rows_.data(), &row, sizeof(row)));
    ZERO_RETURN_IF_ERROR(device_->Fill(*stream_, groups_.data(), 0, groups_.bytes()));
    return stream_->Synchronize();
  }

  void AddAdamW(DType type) {
    const bool narrow = type == DType::kBF16;
    AdamArguments a;
    a.gradient = narrow ? parts_.data() : wide_.data();
    a.gradient_type = type;
    a.weights.master = master_.as<float>();
    if (narrow) a.weights.weight = narrow_out_.data();
    a.weights.weight_type = type;
    a.moment1 = moment1_.as<float>();
    a.moment2 = moment2_.as<float>();
    a.groups = groups_.as<uint8_t>();
    a.n = n_;
    a.beta2 = 0.999f;
    a.one_minus_beta2 = static_cast<float>(1 - 0.999);
    a.epsilon = 1e-8f;
    a.scalars = scalars_.as<StepScalars>();
    a.rows = rows_.as<GroupScalars>();
    // Gradient once; master and two moments, each read and written; weight once.
    cases_.push_back({"AdamW", narrow ? "g bf16, w bf16" : "g fp32, w master",
                      narrow ? 2.0 + 6 * 4 + 2 : 4.0 + 6 * 4,
                      [a](const Stream& stream) { return Adam(stream, a); }});
  }

  void AddNorm(DType type) {
    const void* const in = type == DType::kBF16 ? parts_.data() : wide_.data();
    cases_.push_back({"Norm", Name(type), static_cast<double>(SizeOf(type)),
                      [this, in, type](const Stream& stream) {
                        return Norm(stream, in, type, n_, scratch_.as<NormPartial>(),
                                    partial_.as<NormPartial>());
                      }});
  }

  void AddCases() {
    cases_.push_back({"copy", "fp32", 8, [this](const Stream& stream) {
                        return device_->Copy(stream, wide_out_.data(), wide_.data(), n_ * 4);
                      }});
    AddAdamW(DType::kBF16);
    AddAdamW(DType::kF32);
    OrderedSumArguments a;
    a.parts = parts_.data();
    a.part_type = DType::kBF16;
    a.part_count = kParts;
    a.part_stride = n_;
    a.out = wide_out_.data();
    a.n = n_;
    cases_.push_back({absl::StrCat("OrderedSum of ", kParts), "bf16 to fp32", 2.0 * kParts + 4,
                      [a](const Stream& stream) { return OrderedSum(stream, a); }});
    AddNorm(DType::kBF16);
    AddNorm(DType::kF32);
    cases_.push_back({"Cast", "fp32 to bf16", 6, [this](const Stream& stream) {
                        return Cast(stream, wide_.data(), DType::kF32, narrow_out_.data(),
                                    DType::kBF16, n_);
                      }});
  }

  int64_t n_ = 0;
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Stream> stream_;
  Buffer wide_, wide_out_, master_, moment1_, moment2_;  // fp32
  Buffer narrow_out_, parts_;                            // bf16
  Buffer groups_, scratch_, partial_, scalars_, rows_;
  std::vector<Case> cases_;
};

}  // namespace

absl::StatusOr<CudaKernelTimes> TimeCudaKernels(int64_t elements, int64_t repeats) {
  CudaCases cases;
  ZERO_RETURN_IF_ERROR(cases.Create(elements));
  CudaKernelTimes times;
  times.gpu = cases.gpu();
  for (const Case& c : cases.cases()) times.rows.push_back({c.kernel, c.types, c.bytes, {}});
  // Each repeat runs everything, so that a slow moment of the machine meets all rows alike.
  for (int64_t repeat = 0; repeat <= repeats; ++repeat) {
    for (size_t i = 0; i < times.rows.size(); ++i) {
      const double start = Now();
      for (int run = 0; run < kRuns; ++run) {
        ZERO_RETURN_IF_ERROR(cases.cases()[i].enqueue(cases.stream()));
      }
      ZERO_RETURN_IF_ERROR(cases.stream().Synchronize());
      if (repeat > 0) times.rows[i].samples.Add((Now() - start) / kRuns);  // the first warms up
    }
  }
  return times;
}

}  // namespace zero::bench
