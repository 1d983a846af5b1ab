// fp32 vectors from and to memory of any element type, and exp. Included once per SIMD target.
#if defined(ZERO_EXAMPLES_LLAMA_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZERO_EXAMPLES_LLAMA_SIMD_INL_H_
#undef ZERO_EXAMPLES_LLAMA_SIMD_INL_H_
#else
#define ZERO_EXAMPLES_LLAMA_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "examples/llama/element.h"
#include "hwy/highway.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::llama::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Int32Tag = hn::RebindToSigned<FloatTag>;
using Vec = hn::Vec<FloatTag>;

HWY_INLINE size_t Lanes() { return hn::Lanes(FloatTag()); }
HWY_INLINE Vec Set(float x) { return hn::Set(FloatTag(), x); }
HWY_INLINE Vec Zero() { return hn::Zero(FloatTag()); }

template <class T>
HWY_INLINE Vec Load(const T* p) {
  return zero::HWY_NAMESPACE::LoadElements(FloatTag(), p);
}
template <class T>
HWY_INLINE void Store(Vec v, T* p) {
  zero::HWY_NAMESPACE::StoreElements(FloatTag(), v, p);
}

// How many elements of a vector there are: all, or fewer at the end of a row. Missing ones read
// as 0 and are not written.
struct Whole {};
struct Part {
  size_t count;
};
template <class T>
HWY_INLINE Vec Load(const T* p, Whole) {
  return Load(p);
}
template <class T>
HWY_INLINE Vec Load(const T* p, Part part) {
  T copy[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(copy, p, part.count * sizeof(T));
  return Load(copy);
}
template <class T>
HWY_INLINE void Store(Vec v, T* p, Whole) {
  Store(v, p);
}
template <class T>
HWY_INLINE void Store(Vec v, T* p, Part part) {
  T copy[HWY_MAX_BYTES / sizeof(float)];
  Store(v, copy);
  std::memcpy(p, copy, part.count * sizeof(T));
}

// Calls f(i, Whole or Part) for the vectors that cover [0, n). `f` is a lambda with HWY_ATTR.
template <class F>
HWY_INLINE void ForVectors(size_t n, F f) {
  const size_t lanes = Lanes();
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) f(i, Whole());
  if (i < n) f(i, Part{n - i});
}

HWY_INLINE float SumLanes(Vec v) {
  const FloatTag d;
  return hn::GetLane(hn::SumOfLanes(d, v));
}
HWY_INLINE float MaxLanes(Vec v) {
  const FloatTag d;
  return hn::GetLane(hn::MaxOfLanes(d, v));
}

// e^x. Relative error below 3e-7 where the result is a normal number; 0 for x < -87.3; NaN stays
// NaN. x = n ln 2 + r with |r| <= ln(2) / 2, in two steps (Cody and Waite); the polynomial is that
// of Cephes' expf.
HWY_INLINE Vec Exp(Vec x) {
  const FloatTag d;
  const Vec n =
      hn::Min(hn::Max(hn::Round(hn::Mul(x, Set(1.44269504f))), Set(-126.0f)), Set(127.0f));
  Vec r = hn::NegMulAdd(n, Set(0.693359375f), x);
  r = hn::NegMulAdd(n, Set(-2.12194440e-4f), r);
  Vec p = Set(1.9875691500e-4f);
  p = hn::MulAdd(p, r, Set(1.3981999507e-3f));
  p = hn::MulAdd(p, r, Set(8.3334519073e-3f));
  p = hn::MulAdd(p, r, Set(4.1665795894e-2f));
  p = hn::MulAdd(p, r, Set(1.6666665459e-1f));
  p = hn::MulAdd(p, r, Set(5.0000001201e-1f));
  p = hn::MulAdd(hn::Mul(p, r), r, hn::Add(r, Set(1.0f)));
  const auto power =
      hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(Int32Tag(), n), hn::Set(Int32Tag(), 127)));
  const Vec result = hn::Mul(p, hn::BitCast(d, power));
  return hn::IfThenElse(hn::Lt(x, Set(-87.3f)), Zero(), result);
}

}  // namespace zero::llama::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ZERO_EXAMPLES_LLAMA_SIMD_INL_H_
