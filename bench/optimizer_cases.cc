#include "bench/optimizer_cases.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/array.h"
#include "device/status.h"
#include "kernels/adam_math.h"
#include "kernels/kernels.h"
#include "kernels/lion_math.h"
#include "kernels/random_bits_math.h"
#include "kernels/sgd_math.h"
#include "kernels/split_math.h"

namespace zero::bench {
namespace {

enum class Kind { kBeside, kBesideHalf, kOwn, kSplit, kNone };

struct Named {
  Kind kind;
  const char* name;
  double bytes;  // of gradient, master and weight
};
// A gradient is read; what is kept of the master is read and written; the weight of an fp32 master
// is written.
constexpr Named kKinds[] = {{Kind::kBeside, "fp32 + bf16 weight", 2 + 2 * 4 + 2},
                            {Kind::kBesideHalf, "fp32 + fp16 weight", 2 + 2 * 4 + 2},
                            {Kind::kOwn, "fp32 weight", 4 + 2 * 4},
                            {Kind::kSplit, "split bf16", 2 + 2 * 2 + 2 * 2},
                            {Kind::kNone, "none, bf16", 2 + 2 * 2}};

class Cases : public OptimizerCases {
 public:
  absl::Status Allocate(Device* device, int64_t n) {
    n_ = n;
    int64_t array = 0;
    for (Array* a : {&wide_gradient_, &master_, &moment1_, &moment2_, &spare_}) {
      ZERO_RETURN_IF_ERROR(a->Allocate(device, DType::kF32, n, ++array));
    }
    for (Array* a : {&gradient_, &weight_, &remainder_}) {
      ZERO_RETURN_IF_ERROR(a->Allocate(device, DType::kBF16, n, ++array));
    }
    for (Array* a : {&half_gradient_, &half_weight_}) {
      ZERO_RETURN_IF_ERROR(a->Allocate(device, DType::kF16, n, ++array));
    }
    groups_.resize(static_cast<size_t>(n / 64));
    for (size_t i = 0; i < groups_.size(); ++i) groups_[i] = static_cast<uint8_t>(i % 2);
    scalars_.apply = 1;
    scalars_.divisor = 8;
    scalars_.clip_coefficient = 0.75f;
    scalars_.sqrt_bias_correction2 = 0.5f;
    scalars_.beta1 = 0.9f;
    scalars_.one_minus_beta1 = static_cast<float>(1 - 0.9);
    scalars_.random_key = 3;
    // By parameter group, for decay of the weight and of the gradient.
    for (int g = 0; g < 2; ++g) {
      for (GroupScalars* row : {&decoupled_[g], &coupled_[g]}) {
        row->learning_rate = 1e-5f;
        row->step_size = 2e-5f;
      }
      decoupled_[g].keep = g == 0 ? 0.9999f : 1.0f;
      coupled_[g].weight_decay = g == 0 ? 0.1f : 0.0f;
    }
    for (const Named& kind : kKinds) Add("adamw", kind, MakeAdam(kind.kind, decoupled_));
    for (const Named& kind : kKinds) Add("adam", kind, MakeAdam(kind.kind, coupled_));
    for (const Named& kind : kKinds) Add("sgd", kind, Make<SgdArguments>(kind.kind, coupled_));
    for (const Named& kind : kKinds) {
      LionArguments a = Make<LionArguments>(kind.kind, decoupled_);
      a.beta2 = 0.99f;
      a.one_minus_beta2 = static_cast<float>(1 - 0.99);
      Add("lion", kind, a);
    }
    return absl::OkStatus();
  }

  const std::vector<OptimizerCase>& cases() const override { return cases_; }
  float* triad(int array) override {
    return array == 0 ? spare_.floats() : array == 1 ? wide_gradient_.floats() : master_.floats();
  }

 private:
  template <class Arguments>
  Arguments Make(Kind kind, const GroupScalars* rows) {
    Arguments a;
    const bool half = kind == Kind::kBesideHalf;
    const Array& gradient = Gradient(kind == Kind::kOwn ? DType::kF32
                                     : half             ? DType::kF16
                                                        : DType::kBF16);
    a.gradient = gradient.data();
    a.gradient_type = gradient.type();
    if (kind == Kind::kBeside || half || kind == Kind::kOwn) a.weights.master = master_.floats();
    if (kind == Kind::kSplit) a.weights.remainder = static_cast<uint16_t*>(remainder_.data());
    if (kind != Kind::kOwn) a.weights.weight = half ? half_weight_.data() : weight_.data();
    if (half) a.weights.weight_type = DType::kF16;
    a.moment1 = moment1_.floats();
    a.groups = groups_.data();
    a.n = n_;
    a.scalars = &scalars_;
    a.rows = rows;
    return a;
  }
  AdamArguments MakeAdam(Kind kind, const GroupScalars* rows) {
    AdamArguments a = Make<AdamArguments>(kind, rows);
    a.moment2 = moment2_.floats();
    a.beta2 = 0.999f;
    a.one_minus_beta2 = static_cast<float>(1 - 0.999);
    a.epsilon = 1e-8f;
    return a;
  }

  static double MomentBytes(const AdamArguments&) { return 2 * 2 * 4; }
  template <class Arguments>
  static double MomentBytes(const Arguments&) {
    return 2 * 4;
  }
  static absl::Status Run(const Stream& stream, const AdamArguments& a) { return Adam(stream, a); }
  static absl::Status Run(const Stream& stream, const SgdArguments& a) { return Sgd(stream, a); }
  static absl::Status Run(const Stream& stream, const LionArguments& a) { return Lion(stream, a); }
  static void Formula(const AdamArguments& a, const GroupScalars& row, float gradient, float* p,
                      float* m, float* v) {
    AdamMath(a, *a.scalars, row, gradient, p, m, v);
  }
  static void Formula(const SgdArguments& a, const GroupScalars& row, float gradient, float* p,
                      float* m, float*) {
    SgdMath(a, *a.scalars, row, gradient, p, m);
  }
  static void Formula(const LionArguments& a, const GroupScalars& row, float gradient, float* p,
                      float* m, float*) {
    LionMath(a, *a.scalars, row, gradient, p, m);
  }

  template <class Arguments>
  void Add(const char* optimizer, const Named& kind, const Arguments& a) {
    OptimizerCase c;
    c.optimizer = optimizer;
    c.masters = kind.name;
    c.bytes = kind.bytes + MomentBytes(a);
    c.enqueue = [a](const Stream& stream) { return Run(stream, a); };
    c.difference = [this, a](const Stream& stream) { return Difference(stream, a); };
    cases_.push_back(std::move(c));
  }

  const Array& Gradient(DType type) const {
    return type == DType::kF32 ? wide_gradient_ : type == DType::kF16 ? half_gradient_ : gradient_;
  }
  uint16_t Weight(int64_t i) const { return static_cast<const BFloat16*>(weight_.data())[i].bits; }
  uint16_t HalfWeight(int64_t i) const {
    return static_cast<const Float16*>(half_weight_.data())[i].bits;
  }
  // The fp32 that memory of this kind holds.
  float Master(const MasterMemory& w, int64_t i) const {
    if (w.master != nullptr) return w.master[i];
    if (w.remainder == nullptr) return ToFloat(BFloat16{Weight(i)});
    return JoinMath({BFloat16{Weight(i)}, w.remainder[i]});
  }

  template <class Arguments>
  absl::StatusOr<std::string> Difference(const Stream& stream, const Arguments& a) {
    for (Array* array : {&wide_gradient_, &gradient_, &half_gradient_, &master_, &moment1_,
                         &moment2_, &weight_, &half_weight_}) {
      array->Reset();
    }
    const MasterMemory& w = a.weights;
    for (int64_t i = 0; i < n_; ++i) {
      // Second moments are squares.
      moment2_.floats()[i] *= moment2_.floats()[i];
      if (w.remainder == nullptr) continue;
      const SplitFloat split = SplitMath(master_.Initial(i));
      static_cast<BFloat16*>(weight_.data())[i] = split.weight;
      w.remainder[i] = split.remainder;
    }
    std::vector<float> before(static_cast<size_t>(n_));
    for (int64_t i = 0; i < n_; ++i) before[static_cast<size_t>(i)] = Master(w, i);
    ZERO_RETURN_IF_ERROR(Run(stream, a));
    ZERO_RETURN_IF_ERROR(stream.Synchronize());
    const RandomKeys keys = RandomKeysOf(a.scalars->random_key, w.random_key, 0);
    for (int64_t i = 0; i < n_; ++i) {
      const float root = moment2_.Initial(i);
      float p = before[static_cast<size_t>(i)];
      float m = moment1_.Initial(i);
      float v = root * root;
      const Array& gradient = Gradient(a.gradient_type);
      Formula(a, a.rows[a.groups[i / 64]], gradient.Initial(i), &p, &m, &v);
      uint16_t weight = 0;
      if (w.weight_type == DType::kF16) {
        if (HalfWeight(i) != ToFloat16(p).bits) return absl::StrCat("weight[", i, "]");
      } else if (w.weight != nullptr) {
        const BFloat16 rounded = w.master != nullptr ? ToBFloat16(p)
                                 : w.remainder != nullptr
                                     ? ToBFloat16Away(p)
                                     : UpperHalf(p, RandomBitsMath(keys, static_cast<uint32_t>(i)));
        weight = rounded.bits;
        if (w.master == nullptr && w.remainder == nullptr) p = ToFloat(rounded);
        if (Weight(i) != weight) return absl::StrCat("weight[", i, "]");
      }
      if (BitsOf(Master(w, i)) != BitsOf(p)) return absl::StrCat("master[", i, "]");
      if (BitsOf(moment1_.floats()[i]) != BitsOf(m)) return absl::StrCat("moment1[", i, "]");
      if (BitsOf(moment2_.floats()[i]) != BitsOf(v)) return absl::StrCat("moment2[", i, "]");
    }
    return "";
  }

  int64_t n_ = 0;
  Array wide_gradient_, gradient_, half_gradient_, master_, moment1_, moment2_, spare_, weight_,
      half_weight_, remainder_;
  std::vector<uint8_t> groups_;
  StepScalars scalars_;
  GroupScalars decoupled_[2], coupled_[2];
  std::vector<OptimizerCase> cases_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<OptimizerCases>> OptimizerCases::Create(Device* device, int64_t n) {
  auto cases = std::make_unique<Cases>();
  ZERO_RETURN_IF_ERROR(cases->Allocate(device, n));
  return cases;
}

}  // namespace zero::bench
