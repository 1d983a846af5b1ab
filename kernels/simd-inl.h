// What the SIMD loops share: elements to and from fp32 vectors, and the loop itself. Included once
// for each SIMD target, after hwy/foreach_target.h.
#if defined(ZERO_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZERO_KERNELS_SIMD_INL_H_
#undef ZERO_KERNELS_SIMD_INL_H_
#else
#define ZERO_KERNELS_SIMD_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/element_type.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> LoadElements(D d, const float* in) {
  return hn::LoadU(d, in);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadElements(D d, const BFloat16* in) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(in)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

template <class D>
HWY_INLINE void StoreElements(D d, hn::Vec<D> x, float* out) {
  hn::StoreU(x, d, out);
}

// ToBFloat16 on vectors: Highway's own demotion truncates.
template <class D>
HWY_INLINE void StoreElements(D /* d */, hn::Vec<D> x, BFloat16* out) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::BitCast(d32, x);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(d32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(hn::Set(d32, 0x7FFFu), odd)));
  const auto quiet = hn::Or(upper, hn::Set(d32, 0x40u));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(x));
  const auto result = hn::IfThenElse(is_nan, quiet, rounded);
  hn::StoreU(hn::TruncateTo(d16, result), d16, reinterpret_cast<uint16_t*>(out));
}

// Calls body(d, i) so that elements i .. i + Lanes(d) - 1 cover [begin, end) once, in order: whole
// vectors first, then single elements.
template <class Body>
HWY_INLINE void ForEachVector(int64_t begin, int64_t end, const Body& body) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) body(d, i);
  const hn::CappedTag<float, 1> one;
  for (; i < end; ++i) body(one, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#endif  // the include guard that flips for each target
