// The updates on CUDA: gradients in, masters in and out in each of their kinds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/elements.cuh"
#include "kernels/master_kind.h"
#include "kernels/random_bits_math.h"
#include "kernels/split_math.h"
#include "kernels/update.h"

namespace zero::cuda {

// Masters<kind>: p from memory and back.
//   kPack                  elements that a thread updates together, beside fp32 arrays
//   Include                where its arrays are
//   Load, Store            elements i .. i + kWidth - 1
template <class Kind>
struct Masters;

template <>
struct Masters<OwnMaster> {
  static constexpr int kPack = cuda::kPack<float>;
  __host__ void Include(Alignment* alignment) const { alignment->Include(w.master); }
  template <int kWidth>
  __device__ void Load(int64_t i, float (&p)[kWidth]) const {
    LoadElements(w.master + i, p);
  }
  template <int kWidth>
  __device__ void Store(const StepScalars&, const float (&p)[kWidth], int64_t i) const {
    StoreElements(p, w.master + i);
  }

  MasterMemory w;
};

template <class Weight>
struct Masters<MasterBeside<Weight>> {
  static constexpr int kPack = cuda::kPack<Weight>;
  __host__ void Include(Alignment* alignment) const {
    alignment->Include(w.master);
    alignment->Include(static_cast<const Weight*>(w.weight));
  }
  template <int kWidth>
  __device__ void Load(int64_t i, float (&p)[kWidth]) const {
    LoadElements(w.master + i, p);
  }
  template <int kWidth>
  __device__ void Store(const StepScalars&, const float (&p)[kWidth], int64_t i) const {
    StoreElements(p, w.master + i);
    if constexpr (std::is_same_v<Weight, BFloat16>) {
      if (w.ties_away) {
        StoreElementsAway(p, static_cast<Weight*>(w.weight) + i);
        return;
      }
    }
    StoreElements(p, static_cast<Weight*>(w.weight) + i);
  }

  MasterMemory w;
};

template <>
struct Masters<MasterSplit> {
  static constexpr int kPack = cuda::kPack<uint16_t>;
  __host__ void Include(Alignment* alignment) const {
    alignment->Include(static_cast<const uint16_t*>(w.weight));
    alignment->Include(w.remainder);
  }
  template <int kWidth>
  __device__ void Load(int64_t i, float (&p)[kWidth]) const {
    LoadSplit(static_cast<const uint16_t*>(w.weight) + i, w.remainder + i, p);
  }
  template <int kWidth>
  __device__ void Store(const StepScalars&, const float (&p)[kWidth], int64_t i) const {
    StoreSplit(p, static_cast<uint16_t*>(w.weight) + i, w.remainder + i);
  }

  MasterMemory w;
};

template <>
struct Masters<NoMaster> {
  static constexpr int kPack = cuda::kPack<BFloat16>;
  __host__ void Include(Alignment* alignment) const {
    alignment->Include(static_cast<const BFloat16*>(w.weight));
  }
  template <int kWidth>
  __device__ void Load(int64_t i, float (&p)[kWidth]) const {
    LoadElements(static_cast<const BFloat16*>(w.weight) + i, p);
  }
  template <int kWidth>
  __device__ void Store(const StepScalars& s, const float (&p)[kWidth], int64_t i) const {
    // No pack crosses a multiple of 2^32 elements: they begin at multiples of their width.
    const int64_t element = w.first_element + i;
    const RandomKeys keys =
        RandomKeysOf(s.random_key, w.random_key, static_cast<uint32_t>(element >> 32));
    uint32_t words[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      words[k] = UpperHalf(p[k], RandomBitsMath(keys, static_cast<uint32_t>(element + k))).bits;
    }
    StoreWords(words, static_cast<uint16_t*>(w.weight) + i);
  }

  MasterMemory w;
};

// Of an optimizer; null behind its last.
struct Moments {
  float* at[2];
};

// `Formula` has kPacksInFlight, kMoments and
//   Update(arguments, scalars, row, gradient, &master, moments)   for one element
template <class Formula, class Arguments, class Gradient, class Kind>
struct UpdateOp {
  static constexpr int kPacksInFlight = Formula::kPacksInFlight;
  static constexpr int kMoments = Formula::kMoments;
  template <int kWidth>
  struct Pack {
    float gradient[kWidth];
    float master[kWidth];
    float moments[kMoments > 0 ? kMoments : 1][kWidth];
  };

  __device__ bool Enabled() const { return a.scalars->apply != 0; }
  template <int kWidth>
  __device__ void Read(int64_t i, Pack<kWidth>* pack) const {
    LoadElements(static_cast<const Gradient*>(a.gradient) + i, pack->gradient);
    Masters<Kind>{a.weights}.Load(i, pack->master);
#pragma unroll
    for (int m = 0; m < kMoments; ++m) LoadElements(moments.at[m] + i, pack->moments[m]);
  }
  template <int kWidth>
  __device__ void Write(int64_t i, Pack<kWidth>& pack) const {
    const StepScalars scalars = *a.scalars;
    const GroupScalars row = a.rows[a.groups[i / kGroupElements]];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      float here[kMoments > 0 ? kMoments : 1];
#pragma unroll
      for (int m = 0; m < kMoments; ++m) here[m] = pack.moments[m][k];
      Formula::Update(a, scalars, row, pack.gradient[k], &pack.master[k], here);
#pragma unroll
      for (int m = 0; m < kMoments; ++m) pack.moments[m][k] = here[m];
    }
#pragma unroll
    for (int m = 0; m < kMoments; ++m) StoreElements(pack.moments[m], moments.at[m] + i);
    Masters<Kind>{a.weights}.Store(scalars, pack.master, i);
  }

  Arguments a;
  Moments moments;
};

template <class Formula, class Arguments>
absl::Status LaunchUpdate(const char* name, const Stream& stream, const Arguments& a,
                          const Moments& moments, int64_t first) {
  return WithUpdateTypes(a, [&](auto gradient, auto kind) {
    using Gradient = decltype(gradient);
    using Kind = decltype(kind);
    Alignment alignment(first);
    alignment.Include(static_cast<const Gradient*>(a.gradient));
    Masters<Kind>{a.weights}.Include(&alignment);
    for (int m = 0; m < Formula::kMoments; ++m) alignment.Include(moments.at[m]);
    // Packs begin at multiples of their size from the first element: each has one parameter group.
    alignment.RequireNoHead();
    constexpr int kOfGradient = kPack<Gradient, float>;
    constexpr int kWidth = std::max(kOfGradient, Masters<Kind>::kPack);
    return ForEachElement<kWidth>(name, stream,
                                  UpdateOp<Formula, Arguments, Gradient, Kind>{a, moments},
                                  alignment, first, a.n);
  });
}

}  // namespace zero::cuda
