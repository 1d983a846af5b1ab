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

// ToFloat on vectors of fp16.
template <class D>
HWY_INLINE hn::Vec<D> LoadElements(D d, const Float16* in) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto half = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(in)));
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(d32, 0x8000u)));
  const auto shifted = hn::ShiftLeft<13>(hn::And(half, hn::Set(d32, 0x7FFFu)));
  const auto top = hn::Set(d32, 0x0F800000u);
  const auto exponent = hn::And(shifted, top);
  const auto bias = hn::Set(d32, kFloat16Bias);
  const auto bits = hn::Add(shifted, bias);
  const auto wide = hn::Add(bits, hn::IfThenElseZero(hn::Eq(exponent, top), bias));
  const auto beside = hn::BitCast(d, hn::Add(bits, hn::Set(d32, 0x00800000u)));
  const auto least = hn::BitCast(d, hn::Set(d32, kFloat16Normal));
  const auto subnormal = hn::BitCast(d32, hn::Sub(beside, least));
  const auto is_subnormal = hn::Eq(exponent, hn::Zero(d32));
  return hn::BitCast(d, hn::Or(hn::IfThenElse(is_subnormal, subnormal, wide), sign));
}

template <class D>
HWY_INLINE void StoreElements(D d, hn::Vec<D> x, float* out) {
  hn::StoreU(x, d, out);
}

// UpperHalf on vectors: Highway's own demotion truncates.
template <class D>
HWY_INLINE void StoreUpperHalves(D /* d */, hn::Vec<D> x, hn::Vec<hn::RebindToUnsigned<D>> add,
                                 BFloat16* out) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::BitCast(d32, x);
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, add));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d32, 0x40u));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(x));
  const auto result = hn::IfThenElse(is_nan, quiet, rounded);
  hn::StoreU(hn::TruncateTo(d16, result), d16, reinterpret_cast<uint16_t*>(out));
}

// What is added for ToBFloat16; for ToBFloat16Away where `away` is 1 instead of 0.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> NearestAdd(D /* d */, hn::Vec<D> x, uint32_t away) {
  const hn::RebindToUnsigned<D> d32;
  const auto odd = hn::And(hn::ShiftRight<16>(hn::BitCast(d32, x)), hn::Set(d32, 1u));
  return hn::Add(hn::Set(d32, 0x7FFFu), hn::Or(odd, hn::Set(d32, away)));
}

template <class D>
HWY_INLINE void StoreElements(D d, hn::Vec<D> x, BFloat16* out) {
  StoreUpperHalves(d, x, NearestAdd(d, x, 0), out);
}

// ToFloat16 on vectors.
template <class D>
HWY_INLINE void StoreElements(D d, hn::Vec<D> x, Float16* out) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::BitCast(d32, x);
  const auto magnitude = hn::And(bits, hn::Set(d32, 0x7FFFFFFFu));
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 0x8000u));
  const auto places = hn::Set(d32, kFloat16Places);
  const auto sum = hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, places));
  const auto subnormal = hn::Sub(hn::BitCast(d32, sum), places);
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d32, 1u));
  const auto add = hn::Add(hn::Set(d32, 0xFFFu - kFloat16Bias), odd);
  const auto normal = hn::ShiftRight<13>(hn::Add(magnitude, add));
  const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d32, 0x3FFu));
  const auto quiet = hn::Or(payload, hn::Set(d32, 0x7E00u));
  // Without their signs, fp32 values are ordered as their bits are as int32.
  const hn::RebindToSigned<D> di32;
  const auto signless = hn::BitCast(di32, magnitude);
  const auto limit = [&](uint32_t value)
                         HWY_ATTR { return hn::Set(di32, static_cast<int32_t>(value)); };
  const auto below = hn::RebindMask(d32, hn::Lt(signless, limit(kFloat16Normal)));
  const auto above = hn::RebindMask(d32, hn::Gt(signless, limit(kFloat16Overflow - 1)));
  const auto is_nan = hn::RebindMask(d32, hn::Gt(signless, limit(0x7F800000u)));
  auto result = hn::IfThenElse(below, subnormal, normal);
  result = hn::IfThenElse(above, hn::Set(d32, 0x7C00u), result);
  result = hn::IfThenElse(is_nan, quiet, result);
  const auto narrow = hn::TruncateTo(d16, hn::Or(result, sign));
  hn::StoreU(narrow, d16, reinterpret_cast<uint16_t*>(out));
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
