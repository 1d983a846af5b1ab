#include "device/host_device.h"
#include "device/status.h"
#include "kernels/device_check.h"
#include "kernels/kernels.h"
#include "kernels/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lion.cc"
#include "hwy/foreach_target.h"

#include "kernels/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

// LionMath on vectors.
class LionFormula {
 public:
  explicit LionFormula(const LionArguments& a)
      : moments_(a.moment1),
        beta1_(hn::Set(d_, a.scalars->beta1)),
        one_minus_beta1_(hn::Set(d_, a.scalars->one_minus_beta1)),
        beta2_(hn::Set(d_, a.beta2)),
        one_minus_beta2_(hn::Set(d_, a.one_minus_beta2)) {}

  HWY_INLINE void SetGroup(const GroupScalars& row) {
    keep_ = hn::Set(d_, row.keep);
    rate_ = hn::Set(d_, row.learning_rate);
  }
  HWY_INLINE UpdateVector Update(UpdateVector g, UpdateVector p, int64_t i) const {
    const auto zero = hn::Zero(d_);
    const auto old_m = hn::LoadU(d_, moments_ + i);
    const auto c = hn::Add(hn::Mul(beta1_, old_m), hn::Mul(one_minus_beta1_, g));
    const auto not_up = hn::IfThenElse(hn::Lt(c, zero), hn::Neg(rate_), hn::Add(c, zero));
    const auto move = hn::IfThenElse(hn::Gt(c, zero), rate_, not_up);
    const auto m = hn::Add(hn::Mul(beta2_, old_m), hn::Mul(one_minus_beta2_, g));
    hn::StoreU(m, d_, moments_ + i);
    return hn::Sub(hn::Mul(p, keep_), move);
  }

 private:
  static constexpr UpdateTag d_{};
  float* const moments_;
  const UpdateVector beta1_, one_minus_beta1_, beta2_, one_minus_beta2_;
  UpdateVector keep_ = hn::Zero(d_);
  UpdateVector rate_ = hn::Zero(d_);
};

void LionPiece(const LionArguments& a, int64_t begin, int64_t end) {
  UpdatePiece<LionFormula>(a, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero {

HWY_EXPORT(LionPiece);

absl::Status Lion(const Stream& stream, const LionArguments& arguments) {
  ZERO_RETURN_IF_ERROR(CheckUpdate("Lion", arguments));
  if (arguments.n == 0) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(CheckPointer("Lion", "moment1", arguments.moment1));
  if (OnCuda(stream)) return cuda::Lion(stream, arguments);
  return stream.Enqueue("lion", [a = arguments, pool = HostPool(stream)] {
    if (a.scalars->apply == 0) return absl::OkStatus();
    ParallelFor(pool, a.n, kGrain, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(LionPiece)(a, begin, end);
    });
    return absl::OkStatus();
  });
}

}  // namespace zero
#endif  // HWY_ONCE
