#include "device/host_device.h"
#include "device/status.h"
#include "kernels/device_check.h"
#include "kernels/kernels.h"
#include "kernels/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adam.cc"
#include "hwy/foreach_target.h"

#include "kernels/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

// AdamMath on vectors.
class AdamFormula {
 public:
  explicit AdamFormula(const AdamArguments& a)
      : moments1_(a.moment1),
        moments2_(a.moment2),
        one_minus_beta1_(hn::Set(d_, a.scalars->one_minus_beta1)),
        beta2_(hn::Set(d_, a.beta2)),
        one_minus_beta2_(hn::Set(d_, a.one_minus_beta2)),
        correction_(hn::Set(d_, a.scalars->sqrt_bias_correction2)),
        epsilon_(hn::Set(d_, a.epsilon)) {}

  HWY_INLINE void SetGroup(const GroupScalars& row) {
    keep_ = hn::Set(d_, row.keep);
    step_size_ = hn::Set(d_, row.step_size);
    decay_ = row.weight_decay;
  }
  HWY_INLINE UpdateVector Update(UpdateVector g, UpdateVector p, int64_t i) const {
    if (decay_ != 0) g = hn::Add(g, hn::Mul(hn::Set(d_, decay_), p));
    const auto old_m = hn::LoadU(d_, moments1_ + i);
    const auto old_v = hn::LoadU(d_, moments2_ + i);
    const auto kept = hn::Mul(p, keep_);
    const auto m = hn::Add(old_m, hn::Mul(one_minus_beta1_, hn::Sub(g, old_m)));
    const auto v = hn::Add(hn::Mul(beta2_, old_v), hn::Mul(hn::Mul(one_minus_beta2_, g), g));
    const auto denominator = hn::Add(hn::Div(hn::Sqrt(v), correction_), epsilon_);
    hn::StoreU(m, d_, moments1_ + i);
    hn::StoreU(v, d_, moments2_ + i);
    return hn::Sub(kept, hn::Div(hn::Mul(step_size_, m), denominator));
  }

 private:
  static constexpr UpdateTag d_{};
  float* const moments1_;
  float* const moments2_;
  const UpdateVector one_minus_beta1_, beta2_, one_minus_beta2_, correction_, epsilon_;
  UpdateVector keep_ = hn::Zero(d_);
  UpdateVector step_size_ = hn::Zero(d_);
  float decay_ = 0;
};

void AdamPiece(const AdamArguments& a, int64_t begin, int64_t end) {
  UpdatePiece<AdamFormula>(a, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero {

HWY_EXPORT(AdamPiece);

absl::Status Adam(const Stream& stream, const AdamArguments& arguments) {
  ZERO_RETURN_IF_ERROR(CheckUpdate("Adam", arguments));
  if (arguments.n == 0) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(CheckPointer("Adam", "moment1", arguments.moment1));
  ZERO_RETURN_IF_ERROR(CheckPointer("Adam", "moment2", arguments.moment2));
  if (OnCuda(stream)) return cuda::Adam(stream, arguments);
  return stream.Enqueue("adam", [a = arguments, pool = HostPool(stream)] {
    if (a.scalars->apply == 0) return absl::OkStatus();
    ParallelFor(pool, a.n, kGrain, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(AdamPiece)(a, begin, end);
    });
    return absl::OkStatus();
  });
}

}  // namespace zero
#endif  // HWY_ONCE
