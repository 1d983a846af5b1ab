// Masters of each kind on vectors. Included once for each SIMD target, after hwy/foreach_target.h.
#if defined(ZERO_KERNELS_MASTER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZERO_KERNELS_MASTER_INL_H_
#undef ZERO_KERNELS_MASTER_INL_H_
#else
#define ZERO_KERNELS_MASTER_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "kernels/host_loop.h"
#include "kernels/master_kind.h"
#include "kernels/random_bits_math.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

// Vectors of the updates: none is longer than what has one parameter group.
using UpdateTag = hn::CappedTag<float, kGroupElements>;
using UpdateVector = hn::Vec<UpdateTag>;

template <class D>
using Bits = hn::Vec<hn::RebindToUnsigned<D>>;

// JoinMath on vectors.
template <class D>
HWY_INLINE hn::Vec<D> LoadSplit(D d, const uint16_t* weight, const uint16_t* remainder) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto upper = hn::PromoteTo(d32, hn::LoadU(d16, weight));
  const auto lower = hn::PromoteTo(d32, hn::LoadU(d16, remainder));
  const auto carry = hn::ShiftRight<15>(lower);
  return hn::BitCast(d, hn::Or(hn::ShiftLeft<16>(hn::Sub(upper, carry)), lower));
}

// SplitMath on vectors.
template <class D>
HWY_INLINE void StoreSplit(D d, hn::Vec<D> x, uint16_t* weight, uint16_t* remainder) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  StoreUpperHalves(d, x, hn::Set(d32, 0x8000u), reinterpret_cast<BFloat16*>(weight));
  const auto is_number = hn::RebindMask(d32, hn::Eq(x, x));
  const auto lower = hn::And(hn::BitCast(d32, x), hn::Set(d32, 0xFFFFu));
  hn::StoreU(hn::TruncateTo(d16, hn::IfThenElseZero(is_number, lower)), d16, remainder);
}

// MixBits on vectors.
template <class D32>
HWY_INLINE hn::Vec<D32> MixVectors(D32 d32, hn::Vec<D32> x) {
  x = hn::Xor(x, hn::ShiftRight<16>(x));
  x = hn::Mul(x, hn::Set(d32, kMixFirst));
  x = hn::Xor(x, hn::ShiftRight<15>(x));
  x = hn::Mul(x, hn::Set(d32, kMixSecond));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

// Masters<kind>: p from memory and back. SetBlock comes before the elements of each group's block.
template <class Kind>
struct Masters;

template <>
struct Masters<OwnMaster> {
  Masters(const MasterMemory& memory, const StepScalars&) : master(memory.master) {}
  void SetBlock(int64_t) {}
  template <class D>
  HWY_INLINE hn::Vec<D> Load(D d, int64_t i) const {
    return hn::LoadU(d, master + i);
  }
  template <class D>
  HWY_INLINE void Store(D d, hn::Vec<D> p, int64_t i) const {
    hn::StoreU(p, d, master + i);
  }

  float* const master;
};

template <class Weight>
struct Masters<MasterBeside<Weight>> {
  Masters(const MasterMemory& memory, const StepScalars&)
      : master(memory.master),
        weight(static_cast<Weight*>(memory.weight)),
        away(memory.ties_away ? 1 : 0) {}
  void SetBlock(int64_t) {}
  template <class D>
  HWY_INLINE hn::Vec<D> Load(D d, int64_t i) const {
    return hn::LoadU(d, master + i);
  }
  template <class D>
  HWY_INLINE void Store(D d, hn::Vec<D> p, int64_t i) const {
    hn::StoreU(p, d, master + i);
    if constexpr (std::is_same_v<Weight, BFloat16>) {
      StoreUpperHalves(d, p, NearestAdd(d, p, away), weight + i);
    } else {
      StoreElements(d, p, weight + i);
    }
  }

  float* const master;
  Weight* const weight;
  const uint32_t away;
};

template <>
struct Masters<MasterSplit> {
  Masters(const MasterMemory& memory, const StepScalars&)
      : weight(static_cast<uint16_t*>(memory.weight)), remainder(memory.remainder) {}
  void SetBlock(int64_t) {}
  template <class D>
  HWY_INLINE hn::Vec<D> Load(D d, int64_t i) const {
    return LoadSplit(d, weight + i, remainder + i);
  }
  template <class D>
  HWY_INLINE void Store(D d, hn::Vec<D> p, int64_t i) const {
    StoreSplit(d, p, weight + i, remainder + i);
  }

  uint16_t* const weight;
  uint16_t* const remainder;
};

template <>
struct Masters<NoMaster> {
  Masters(const MasterMemory& memory, const StepScalars& scalars)
      : weight(static_cast<BFloat16*>(memory.weight)),
        step(scalars.random_key),
        parameter(memory.random_key),
        first(memory.first_element),
        lanes(hn::Iota(hn::RebindToUnsigned<UpdateTag>(), 0)) {}
  // No block crosses a multiple of 2^32 elements: they begin at multiples of 64.
  HWY_INLINE void SetBlock(int64_t block) {
    const int64_t next = (first + block) >> 32;
    if (next == upper) return;
    upper = next;
    keys = RandomKeysOf(step, parameter, static_cast<uint32_t>(next));
  }
  HWY_INLINE UpdateVector Load(UpdateTag d, int64_t i) const { return LoadElements(d, weight + i); }
  HWY_INLINE void Store(UpdateTag d, UpdateVector p, int64_t i) const {
    const hn::RebindToUnsigned<UpdateTag> d32;
    // The numbers of the lanes are kept: GCC has Iota write them to memory each time.
    const auto lower = hn::Add(lanes, hn::Set(d32, static_cast<uint32_t>(first + i)));
    const auto once = MixVectors(d32, hn::Xor(lower, hn::Set(d32, keys.first)));
    const auto twice = MixVectors(d32, hn::Add(once, hn::Set(d32, keys.second)));
    StoreUpperHalves(d, p, hn::ShiftRight<16>(twice), weight + i);
  }

  BFloat16* const weight;
  const uint32_t step;
  const uint32_t parameter;
  const int64_t first;
  const Bits<UpdateTag> lanes;
  int64_t upper = -1;
  RandomKeys keys;
};

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#endif  // the include guard that flips for each target
