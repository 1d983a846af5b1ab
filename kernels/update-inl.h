// The loop of the updates on vectors: gradients in, masters in and out in each of their kinds.
// Included once for each SIMD target, after hwy/foreach_target.h.
#if defined(ZERO_KERNELS_UPDATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZERO_KERNELS_UPDATE_INL_H_
#undef ZERO_KERNELS_UPDATE_INL_H_
#else
#define ZERO_KERNELS_UPDATE_INL_H_
#endif

#include <cstdint>

#include "kernels/master-inl.h"
#include "kernels/update.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

// `begin` and `end` are multiples of kGroupElements. `formula` is made for each run:
//   void SetGroup(const GroupScalars& row)
//   UpdateVector Update(UpdateVector g, UpdateVector p, int64_t i)   the new masters
template <class Formula, class Gradient, class Kind, class Arguments>
void UpdateLoop(const Arguments& a, int64_t begin, int64_t end) {
  const UpdateTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Gradient* const gradients = static_cast<const Gradient*>(a.gradient);
  const auto divisor = hn::Set(d, a.scalars->divisor);
  const auto clip = hn::Set(d, a.scalars->clip_coefficient);
  Masters<Kind> masters(a.weights, *a.scalars);
  Formula formula(a);
  for (int64_t block = begin; block < end; block += kGroupElements) {
    formula.SetGroup(a.rows[a.groups[block / kGroupElements]]);
    masters.SetBlock(block);
    for (int64_t i = block; i < block + kGroupElements; i += lanes) {
      const auto g = hn::Mul(hn::Div(LoadElements(d, gradients + i), divisor), clip);
      masters.Store(d, formula.Update(g, masters.Load(d, i), i), i);
    }
  }
}

template <class Formula, class Arguments>
void UpdatePiece(const Arguments& a, int64_t begin, int64_t end) {
  WithUpdateTypes(a, [&](auto gradient, auto kind) {
    UpdateLoop<Formula, decltype(gradient), decltype(kind)>(a, begin, end);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#endif  // the include guard that flips for each target
