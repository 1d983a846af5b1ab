// Elements in and out of memory, 16 bytes at a time, and the loop of the element-wise kernels.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "device/cuda_stream.h"
#include "kernels/element_type.h"
#include "kernels/grid.cuh"
#include "kernels/launch.cuh"
#include "kernels/split_math.h"

namespace zero::cuda {

// Elements that a thread handles together: those of 16 bytes of the narrowest type.
template <class... Types>
inline constexpr int kPack = ((sizeof(Types) == 2) || ...) ? 8 : 4;

// x[0 .. kWidth - 1] as fp32. Only widths above 1 need `x` at a multiple of 16 bytes.
template <int kWidth>
__device__ __forceinline__ void LoadElements(const float* x, float (&values)[kWidth]) {
  if constexpr (kWidth == 1) {
    values[0] = *x;
  } else {
    static_assert(kWidth % 4 == 0);
#pragma unroll
    for (int k = 0; k < kWidth; k += 4) {
      const float4 four = *reinterpret_cast<const float4*>(x + k);
      values[k] = four.x;
      values[k + 1] = four.y;
      values[k + 2] = four.z;
      values[k + 3] = four.w;
    }
  }
}

// The same of 16-bit words.
template <int kWidth>
__device__ __forceinline__ void LoadWords(const uint16_t* x, uint32_t (&words)[kWidth]) {
  if constexpr (kWidth == 1) {
    words[0] = *x;
  } else {
    static_assert(kWidth == 8);
    const uint4 eight = *reinterpret_cast<const uint4*>(x);
    const uint32_t pairs[] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      words[2 * k] = pairs[k] & 0xFFFFu;
      words[2 * k + 1] = pairs[k] >> 16;
    }
  }
}

// T is BFloat16 or Float16.
template <int kWidth, class T>
__device__ __forceinline__ void LoadElements(const T* x, float (&values)[kWidth]) {
  uint32_t words[kWidth];
  LoadWords(reinterpret_cast<const uint16_t*>(x), words);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    T element;
    element.bits = static_cast<uint16_t>(words[k]);
    values[k] = ToFloat(element);
  }
}

// x[0 .. kWidth - 1] = values, rounded.
template <int kWidth>
__device__ __forceinline__ void StoreElements(const float (&values)[kWidth], float* x) {
  if constexpr (kWidth == 1) {
    *x = values[0];
  } else {
    static_assert(kWidth % 4 == 0);
#pragma unroll
    for (int k = 0; k < kWidth; k += 4) {
      *reinterpret_cast<float4*>(x + k) =
          make_float4(values[k], values[k + 1], values[k + 2], values[k + 3]);
    }
  }
}

// Words below 2^16.
template <int kWidth>
__device__ __forceinline__ void StoreWords(const uint32_t (&words)[kWidth], uint16_t* x) {
  if constexpr (kWidth == 1) {
    *x = static_cast<uint16_t>(words[0]);
  } else {
    static_assert(kWidth == 8);
    uint32_t pairs[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) pairs[k] = words[2 * k] | words[2 * k + 1] << 16;
    *reinterpret_cast<uint4*>(x) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }
}

template <int kWidth, class T>
__device__ __forceinline__ void StoreElements(const float (&values)[kWidth], T* x) {
  uint32_t words[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    T element;
    RoundTo(values[k], &element);
    words[k] = element.bits;
  }
  StoreWords(words, reinterpret_cast<uint16_t*>(x));
}

// Ties go away from zero.
template <int kWidth>
__device__ __forceinline__ void StoreElementsAway(const float (&values)[kWidth], BFloat16* x) {
  uint32_t words[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) words[k] = ToBFloat16Away(values[k]).bits;
  StoreWords(words, reinterpret_cast<uint16_t*>(x));
}

// JoinMath and SplitMath.
template <int kWidth>
__device__ __forceinline__ void LoadSplit(const uint16_t* weight, const uint16_t* remainder,
                                          float (&values)[kWidth]) {
  uint32_t upper[kWidth];
  uint32_t lower[kWidth];
  LoadWords(weight, upper);
  LoadWords(remainder, lower);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    SplitFloat split;
    split.weight.bits = static_cast<uint16_t>(upper[k]);
    split.remainder = static_cast<uint16_t>(lower[k]);
    values[k] = JoinMath(split);
  }
}
template <int kWidth>
__device__ __forceinline__ void StoreSplit(const float (&values)[kWidth], uint16_t* weight,
                                           uint16_t* remainder) {
  uint32_t upper[kWidth];
  uint32_t lower[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const SplitFloat split = SplitMath(values[k]);
    upper[k] = split.weight.bits;
    lower[k] = split.remainder;
  }
  StoreWords(upper, weight);
  StoreWords(lower, remainder);
}

// Where 16-byte accesses of a run of elements can begin, for all arrays of a kernel together.
class Alignment {
 public:
  // `first`: the run's first element.
  explicit Alignment(int64_t first) : first_(first) {}

  template <class T>
  void Include(const T* x) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(x) + first_ * sizeof(T);
    const int64_t over = static_cast<int64_t>(address % 16 / sizeof(T));
    // To the next multiple of 16 bytes; a whole multiple of 16 bytes more is as good.
    Add((kPeriod<T> - over) % kPeriod<T>, kPeriod<T>);
  }
  // Parts at this distance from an included array.
  template <class T>
  void IncludeStride(int64_t stride) {
    if (stride % kPeriod<T> != 0) possible_ = false;
  }
  // No elements may come before the first pack.
  void RequireNoHead() {
    if (head_ != 0) possible_ = false;
  }

  bool possible() const { return possible_; }
  // The elements before the first access, at most 7.
  int64_t head() const { return head_; }

 private:
  template <class T>
  static constexpr int64_t kPeriod = 16 / sizeof(T);

  void Add(int64_t head, int64_t period) {
    // Solutions so far are head_ + k x period_, of which one may agree with the new ones.
    for (int64_t candidate = head_; candidate < head_ + period_ * period; candidate += period_) {
      if (candidate % period != head) continue;
      head_ = candidate;
      period_ = period_ < period ? period : period_;
      head_ %= period_;
      return;
    }
    possible_ = false;
  }

  int64_t first_;
  int64_t head_ = 0;
  int64_t period_ = 1;
  bool possible_ = true;
};

// Elements first .. end - 1 of arrays; packs begin at `packs`.
struct ElementRange {
  int64_t first;
  int64_t packs;
  int64_t end;
};

inline constexpr int kElementThreads = 256;

// `op` is the work on one pack:
//   template <int kWidth> struct Pack      what is held between reading and writing
//   kPacksInFlight                         packs that a thread reads before it writes
//   bool Enabled() const                   false: nothing is to be done
//   template <int kWidth> void Read(int64_t i, Pack<kWidth>* pack) const
//   template <int kWidth> void Write(int64_t i, Pack<kWidth>& pack) const
template <int kWidth, class Op>
__global__ void __launch_bounds__(kElementThreads)
    ElementKernel(const Op op, const ElementRange range) {
  constexpr int64_t kTile = int64_t{kElementThreads} * kWidth * Op::kPacksInFlight;
  const int64_t thread = threadIdx.x;
  if (!op.Enabled()) return;
  if (blockIdx.x == 0 && range.first + thread < range.packs) {
    typename Op::template Pack<1> one;
    op.Read(range.first + thread, &one);
    op.Write(range.first + thread, one);
  }
  for (int64_t tile = range.packs + blockIdx.x * kTile; tile < range.end;
       tile += gridDim.x * kTile) {
    if (tile + kTile <= range.end) {
      typename Op::template Pack<kWidth> packs[Op::kPacksInFlight];
#pragma unroll
      for (int k = 0; k < Op::kPacksInFlight; ++k) {
        op.Read(tile + (k * kElementThreads + thread) * kWidth, &packs[k]);
      }
#pragma unroll
      for (int k = 0; k < Op::kPacksInFlight; ++k) {
        op.Write(tile + (k * kElementThreads + thread) * kWidth, packs[k]);
      }
      continue;
    }
    const int64_t rest = range.end - (range.end - tile) % kWidth;
    for (int64_t i = tile + thread * kWidth; i < rest; i += kElementThreads * kWidth) {
      typename Op::template Pack<kWidth> pack;
      op.Read(i, &pack);
      op.Write(i, pack);
    }
    if (rest + thread < range.end) {
      typename Op::template Pack<1> one;
      op.Read(rest + thread, &one);
      op.Write(rest + thread, one);
    }
  }
}

// Runs `op` on elements first .. n - 1, in packs of kWidth where `alignment` has a place for them.
template <int kWidth, class Op>
absl::Status ForEachElement(const char* name, const Stream& stream, const Op& op,
                            const Alignment& alignment, int64_t first, int64_t n) {
  const bool packed = alignment.possible() && first + alignment.head() < n;
  const ElementRange range{first, packed ? first + alignment.head() : first, n};
  const int64_t tile = int64_t{kElementThreads} * (packed ? kWidth : 1) * Op::kPacksInFlight;
  const auto kernel = packed ? &ElementKernel<kWidth, Op> : &ElementKernel<1, Op>;
  return LaunchGrid(name, stream, kernel, (n - range.packs + tile - 1) / tile, kElementThreads, op,
                    range);
}

}  // namespace zero::cuda
