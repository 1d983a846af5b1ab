#include <type_traits>

#include "device/host_device.h"
#include "device/status.h"
#include "kernels/device_check.h"
#include "kernels/kernels.h"
#include "kernels/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sgd.cc"
#include "hwy/foreach_target.h"

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

// SgdMath on vectors. `begin` and `end` are multiples of kGroupElements.
template <bool kHasMoment, class Gradient, class Weight>
void SgdLoop(const SgdArguments& a, int64_t begin, int64_t end) {
  const hn::CappedTag<float, kGroupElements> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Gradient* const gradients = static_cast<const Gradient*>(a.gradient);
  Weight* const weights = static_cast<Weight*>(a.weight);
  float* const masters = a.master;
  float* const moments = a.moment1;
  const auto divisor = hn::Set(d, a.scalars->divisor);
  const auto clip = hn::Set(d, a.scalars->clip_coefficient);
  const auto momentum = hn::Set(d, a.momentum);

  for (int64_t block = begin; block < end; block += kGroupElements) {
    const GroupScalars& row = a.rows[a.groups[block / kGroupElements]];
    const auto decay = hn::Set(d, row.weight_decay);
    const auto rate = hn::Set(d, row.learning_rate);
    for (int64_t i = block; i < block + kGroupElements; i += lanes) {
      const auto g = hn::Mul(hn::Div(LoadElements(d, gradients + i), divisor), clip);
      const auto old_p = hn::LoadU(d, masters + i);
      auto m = hn::Add(g, hn::Mul(decay, old_p));
      if constexpr (kHasMoment) {
        m = hn::Add(hn::Mul(momentum, hn::LoadU(d, moments + i)), m);
        hn::StoreU(m, d, moments + i);
      }
      const auto p = hn::Sub(old_p, hn::Mul(rate, m));
      hn::StoreU(p, d, masters + i);
      if constexpr (!std::is_same_v<Weight, NoWeight>) StoreElements(d, p, weights + i);
    }
  }
}

void SgdPiece(const SgdArguments& a, int64_t begin, int64_t end) {
  WithElementType(a.gradient_type, [&](auto gradient) {
    WithWeightType(a.weight, a.weight_type, [&](auto weight) {
      if (a.moment1 != nullptr) {
        SgdLoop<true, decltype(gradient), decltype(weight)>(a, begin, end);
      } else {
        SgdLoop<false, decltype(gradient), decltype(weight)>(a, begin, end);
      }
    });
  });
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
  if (arguments.momentum != 0) {
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
