#include "bench/kernel_cases.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/array.h"
#include "device/status.h"
#include "kernels/adam_math.h"
#include "kernels/element_type.h"
#include "kernels/kernels.h"
#include "kernels/norm_math.h"
#include "kernels/sgd_math.h"

namespace zero::bench {
namespace {

constexpr int64_t kParts = 4;

struct Updated {
  float master, moment1, moment2;
};

class Cases : public KernelCases {
 public:
  absl::Status Allocate(Device* device, int64_t n) {
    n_ = n;
    int64_t array = 0;
    for (Array* a : {&narrow_, &narrow_out_}) {
      ZERO_RETURN_IF_ERROR(a->Allocate(device, DType::kBF16, n, ++array));
    }
    for (Array* a : {&wide_, &wide_out_, &master_, &moment1_, &moment2_}) {
      ZERO_RETURN_IF_ERROR(a->Allocate(device, DType::kF32, n, ++array));
    }
    ZERO_RETURN_IF_ERROR(parts_.Allocate(device, DType::kBF16, kParts * n, ++array));
    groups_.resize(static_cast<size_t>(n / 64));
    for (size_t i = 0; i < groups_.size(); ++i) groups_[i] = static_cast<uint8_t>(i % 2);
    chunks_.resize(static_cast<size_t>(NormChunks(n)));
    scalars_.apply = 1;
    scalars_.divisor = 8;
    scalars_.clip_coefficient = 0.75f;
    scalars_.sqrt_bias_correction2 = 0.5f;
    scalars_.beta1 = 0.9f;
    scalars_.one_minus_beta1 = static_cast<float>(1 - 0.9);
    for (int g = 0; g < 2; ++g) {
      rows_[g].learning_rate = 1e-3f;
      rows_[g].step_size = 2e-3f;
      rows_[g].keep = g == 0 ? 0.9999f : 1.0f;
    }
    AddUpdates();
    AddOthers();
    return absl::OkStatus();
  }

  const std::vector<KernelCase>& cases() const override { return cases_; }
  float* triad(int array) override {
    return array == 0 ? wide_out_.floats() : array == 1 ? wide_.floats() : master_.floats();
  }

 private:
  template <class Arguments>
  Arguments Update(const Array& gradient, const Array* weight) {
    Arguments a;
    a.gradient = gradient.data();
    a.gradient_type = gradient.type();
    a.weights.master = master_.floats();
    a.moment1 = moment1_.floats();
    if (weight != nullptr) {
      a.weights.weight = weight->data();
      a.weights.weight_type = weight->type();
    }
    a.groups = groups_.data();
    a.n = n_;
    a.scalars = &scalars_;
    a.rows = rows_;
    return a;
  }

  absl::Status ResetUpdates() {
    for (Array* a : {&narrow_, &wide_, &narrow_out_, &wide_out_, &master_, &moment1_, &moment2_}) {
      a->Reset();
    }
    // Second moments are squares.
    for (int64_t i = 0; i < n_; ++i) moment2_.floats()[i] *= moment2_.floats()[i];
    return absl::OkStatus();
  }

  // One element after one update by the scalar formulas.
  Updated Expected(const AdamArguments& a, const Array& gradient, int64_t i) const {
    const float root = moment2_.Initial(i);
    Updated u{master_.Initial(i), moment1_.Initial(i), root * root};
    AdamMath(a, scalars_, rows_[groups_[static_cast<size_t>(i / 64)]], gradient.Initial(i),
             &u.master, &u.moment1, &u.moment2);
    return u;
  }
  Updated Expected(const SgdArguments& a, const Array& gradient, int64_t i) const {
    Updated u{master_.Initial(i), moment1_.Initial(i), 0};
    SgdMath(a, scalars_, rows_[groups_[static_cast<size_t>(i / 64)]], gradient.Initial(i),
            &u.master, &u.moment1);
    return u;
  }

  template <class Arguments>
  std::string UpdateDifference(const Arguments& a, const Array* gradient,
                               const Array* weight) const {
    const auto master = [&](int64_t i) { return Expected(a, *gradient, i).master; };
    const auto moment1 = [&](int64_t i) { return Expected(a, *gradient, i).moment1; };
    std::string difference = master_.Difference("master", master);
    if (difference.empty()) difference = moment1_.Difference("moment1", moment1);
    if (difference.empty() && weight != nullptr) difference = weight->Difference("weight", master);
    return difference;
  }

  void AddUpdate(const Array* gradient, const Array* weight, const std::string& types) {
    AdamArguments a = Update<AdamArguments>(*gradient, weight);
    a.moment2 = moment2_.floats();
    a.beta2 = 0.999f;
    a.one_minus_beta2 = static_cast<float>(1 - 0.999);
    a.epsilon = 1e-8f;
    KernelCase adamw;
    adamw.kernel = "AdamW";
    adamw.types = types;
    // Gradient once; master and two moments, each read and written; weight once.
    adamw.bytes = static_cast<double>(SizeOf(gradient->type()) + 6 * 4 +
                                      (weight != nullptr ? SizeOf(weight->type()) : 0));
    adamw.prepare = [this] { return ResetUpdates(); };
    adamw.enqueue = [a](const Stream& stream) { return Adam(stream, a); };
    adamw.difference = [this, a, gradient, weight] {
      const auto moment2 = [&](int64_t i) { return Expected(a, *gradient, i).moment2; };
      const std::string difference = UpdateDifference(a, gradient, weight);
      return difference.empty() ? moment2_.Difference("moment2", moment2) : difference;
    };
    cases_.push_back(std::move(adamw));
  }

  void AddUpdates() {
    AddUpdate(&narrow_, &narrow_out_, "g bf16, w bf16");
    AddUpdate(&wide_, &narrow_out_, "g fp32, w bf16");
    AddUpdate(&wide_, nullptr, "g fp32, w master");

    SgdArguments a = Update<SgdArguments>(narrow_, &narrow_out_);
    KernelCase sgd;
    sgd.kernel = "Sgd";
    sgd.types = "g bf16, w bf16";
    sgd.bytes = 2 + 4 * 4 + 2;
    sgd.prepare = [this] { return ResetUpdates(); };
    sgd.enqueue = [a](const Stream& stream) { return Sgd(stream, a); };
    sgd.difference = [this, a] { return UpdateDifference(a, &narrow_, &narrow_out_); };
    cases_.push_back(std::move(sgd));
  }

  void AddConversion(bool add, const Array* in, Array* out) {
    KernelCase c;
    c.kernel = add ? "Add" : "Cast";
    c.types = absl::StrCat(Name(in->type()), " to ", Name(out->type()));
    c.bytes = static_cast<double>(SizeOf(in->type()) + (add ? 2 : 1) * SizeOf(out->type()));
    c.prepare = [this] { return ResetUpdates(); };
    c.enqueue = [=, n = n_](const Stream& stream) {
      return add ? Add(stream, in->data(), in->type(), out->data(), out->type(), n)
                 : Cast(stream, in->data(), in->type(), out->data(), out->type(), n);
    };
    c.difference = [=] {
      return out->Difference("out", [=](int64_t i) {
        return add ? out->Initial(i) + in->Initial(i) : in->Initial(i);
      });
    };
    cases_.push_back(std::move(c));
  }

  void AddNorm(const Array* in) {
    KernelCase c;
    c.kernel = "Norm";
    c.types = Name(in->type());
    c.bytes = static_cast<double>(SizeOf(in->type()));
    c.prepare = [this] { return ResetUpdates(); };
    c.enqueue = [=, this](const Stream& stream) {
      return Norm(stream, in->data(), in->type(), n_, chunks_.data(), &norm_);
    };
    c.difference = [=, this]() -> std::string {
      std::vector<NormPartial> chunks(chunks_.size());
      WithElementType(in->type(), [&](auto t) {
        const auto* x = static_cast<const decltype(t)*>(in->data());
        for (int64_t i = 0; i < n_; i += kNormChunk) {
          chunks[static_cast<size_t>(i / kNormChunk)] =
              NormChunkMath(x + i, std::min(kNormChunk, n_ - i), i);
        }
      });
      const NormPartial expected = AddChunksMath(chunks.data(), NormChunks(n_));
      if (norm_.sum_of_squares == expected.sum_of_squares && norm_.non_finite == 0) return "";
      return absl::StrCat("sum of squares is ", norm_.sum_of_squares, ", expected ",
                          expected.sum_of_squares);
    };
    cases_.push_back(std::move(c));
  }

  void AddOthers() {
    AddConversion(false, &narrow_, &wide_out_);
    AddConversion(false, &wide_, &narrow_out_);
    AddConversion(true, &narrow_, &wide_out_);
    AddConversion(true, &wide_, &wide_out_);

    OrderedSumArguments a;
    a.parts = parts_.data();
    a.part_type = parts_.type();
    a.part_count = kParts;
    a.part_stride = n_;
    a.out = wide_out_.data();
    a.n = n_;
    KernelCase sum;
    sum.kernel = absl::StrCat("OrderedSum of ", kParts);
    sum.types = "bf16 to fp32";
    sum.bytes = 2.0 * kParts + 4;
    sum.prepare = [] { return absl::OkStatus(); };
    sum.enqueue = [a](const Stream& stream) { return OrderedSum(stream, a); };
    sum.difference = [this] {
      return wide_out_.Difference("out", [this](int64_t i) {
        float total = parts_.Initial(i);
        for (int64_t p = 1; p < kParts; ++p) total = total + parts_.Initial(p * n_ + i);
        return total;
      });
    };
    cases_.push_back(std::move(sum));

    AddNorm(&narrow_);
    AddNorm(&wide_);
  }

  int64_t n_ = 0;
  Array narrow_, narrow_out_, wide_, wide_out_, master_, moment1_, moment2_, parts_;
  std::vector<uint8_t> groups_;
  std::vector<NormPartial> chunks_;
  NormPartial norm_;
  StepScalars scalars_;
  GroupScalars rows_[2];
  std::vector<KernelCase> cases_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KernelCases>> KernelCases::Create(Device* device, int64_t n) {
  auto cases = std::make_unique<Cases>();
  ZERO_RETURN_IF_ERROR(cases->Allocate(device, n));
  return cases;
}

}  // namespace zero::bench
