#include <type_traits>

#include "device/host_device.h"
#include "device/status.h"
#include "kernels/device_check.h"
#include "kernels/kernels.h"
#include "kernels/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw.cc"
#include "hwy/foreach_target.h"

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

// AdamWMath on vectors. `begin` and `end` are multiples of kGroupElements.
template <class Gradient, class Weight>
void AdamWLoop(const AdamWArguments& a, int64_t begin, int64_t end) {
  const hn::CappedTag<float, kGroupElements> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Gradient* const gradients = static_cast<const Gradient*>(a.gradient);
  Weight* const weights = static_cast<Weight*>(a.weight);
  float* const masters = a.master;
  float* const moments1 = a.moment1;
  float* const moments2 = a.moment2;
  const auto divisor = hn::Set(d, a.scalars->divisor);
  const auto clip = hn::Set(d, a.scalars->clip_coefficient);
  const auto correction = hn::Set(d, a.scalars->sqrt_bias_correction2);
  const auto one_minus_beta1 = hn::Set(d, a.one_minus_beta1);
  const auto beta2 = hn::Set(d, a.beta2);
  const auto one_minus_beta2 = hn::Set(d, a.one_minus_beta2);
  const auto epsilon = hn::Set(d, a.epsilon);

  for (int64_t block = begin; block < end; block += kGroupElements) {
    const GroupScalars& row = a.rows[a.groups[block / kGroupElements]];
    const auto keep = hn::Set(d, row.keep);
    const auto step_size = hn::Set(d, row.step_size);
    for (int64_t i = block; i < block + kGroupElements; i += lanes) {
      const auto g = hn::Mul(hn::Div(LoadElements(d, gradients + i), divisor), clip);
      const auto old_m = hn::LoadU(d, moments1 + i);
      const auto old_v = hn::LoadU(d, moments2 + i);
      const auto kept = hn::Mul(hn::LoadU(d, masters + i), keep);
      const auto m = hn::Add(old_m, hn::Mul(one_minus_beta1, hn::Sub(g, old_m)));
      const auto v = hn::Add(hn::Mul(beta2, old_v), hn::Mul(hn::Mul(one_minus_beta2, g), g));
      const auto denominator = hn::Add(hn::Div(hn::Sqrt(v), correction), epsilon);
      const auto p = hn::Sub(kept, hn::Div(hn::Mul(step_size, m), denominator));
      hn::StoreU(m, d, moments1 + i);
      hn::StoreU(v, d, moments2 + i);
      hn::StoreU(p, d, masters + i);
      if constexpr (!std::is_same_v<Weight, NoWeight>) StoreElements(d, p, weights + i);
    }
  }
}

void AdamWPiece(const AdamWArguments& a, int64_t begin, int64_t end) {
  WithElementType(a.gradient_type, [&](auto gradient) {
    WithWeightType(a.weight, a.weight_type, [&](auto weight) {
      AdamWLoop<decltype(gradient), decltype(weight)>(a, begin, end);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero {

HWY_EXPORT(AdamWPiece);

absl::Status AdamW(const Stream& stream, const AdamWArguments& arguments) {
  ZERO_RETURN_IF_ERROR(CheckUpdate("AdamW", arguments));
  if (arguments.n == 0) return absl::OkStatus();
  ZERO_RETURN_IF_ERROR(CheckPointer("AdamW", "moment1", arguments.moment1));
  ZERO_RETURN_IF_ERROR(CheckPointer("AdamW", "moment2", arguments.moment2));
  if (OnCuda(stream)) return cuda::AdamW(stream, arguments);
  return stream.Enqueue("adamw", [a = arguments, pool = HostPool(stream)] {
    if (a.scalars->apply == 0) return absl::OkStatus();
    ParallelFor(pool, a.n, kGrain, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(AdamWPiece)(a, begin, end);
    });
    return absl::OkStatus();
  });
}

}  // namespace zero
#endif  // HWY_ONCE
