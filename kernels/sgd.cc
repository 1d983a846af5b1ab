#include "device/host_device.h"
#include "device/status.h"
#include "kernels/device_check.h"
#include "kernels/kernels.h"
#include "kernels/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sgd.cc"
#include "hwy/foreach_target.h"

#include "kernels/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

// SgdMath on vectors.
template <bool kHasMoment>
class SgdFormula {
 public:
  explicit SgdFormula(const SgdArguments& a)
      : moments_(a.moment1), nesterov_(a.nesterov), momentum_(hn::Set(d_, a.scalars->beta1)) {}

  HWY_INLINE void SetGroup(const GroupScalars& row) {
    decay_ = hn::Set(d_, row.weight_decay);
    rate_ = hn::Set(d_, row.learning_rate);
  }
  HWY_INLINE UpdateVector Update(UpdateVector g, UpdateVector p, int64_t i) const {
    g = hn::Add(g, hn::Mul(decay_, p));
    if constexpr (kHasMoment) {
      const auto m = hn::Add(hn::Mul(momentum_, hn::LoadU(d_, moments_ + i)), g);
      hn::StoreU(m, d_, moments_ + i);
      g = nesterov_ ? hn::Add(g, hn::Mul(momentum_, m)) : m;
    }
    return hn::Sub(p, hn::Mul(rate_, g));
  }

 private:
  static constexpr UpdateTag d_{};
  float* const moments_;
  const bool nesterov_;
  const UpdateVector momentum_;
  UpdateVector decay_ = hn::Zero(d_);
  UpdateVector rate_ = hn::Zero(d_);
};

void SgdPiece(const SgdArguments& a, int64_t begin, int64_t end) {
  if (a.moment1 != nullptr) {
    UpdatePiece<SgdFormula<true>>(a, begin, end);
  } else {
    UpdatePiece<SgdFormula<false>>(a, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero {

HWY_EXPORT(SgdPiece);

absl::Status Sgd(const Stream& stream, const SgdArguments& arguments) {
  ZERO_RETURN_IF_ERROR(CheckUpdate("Sgd", arguments));
  if (arguments.n == 0) return absl::OkStatus();
  if (arguments.nesterov) {
    ZERO_RETURN_IF_ERROR(CheckPointer("Sgd", "moment1", arguments.moment1));
  }
  if (OnCuda(stream)) return cuda::Sgd(stream, arguments);
  return stream.Enqueue("sgd", [a = arguments, pool = HostPool(stream)] {
    if (a.scalars->apply == 0) return absl::OkStatus();
    ParallelFor(pool, a.n, kGrain, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(SgdPiece)(a, begin, end);
    });
    return absl::OkStatus();
  });
}

}  // namespace zero
#endif  // HWY_ONCE
