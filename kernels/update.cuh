// What the update kernels AdamW and Sgd share on CUDA.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/element_type.h"
#include "kernels/elements.cuh"
#include "kernels/update.h"

namespace zero::cuda {

// Elements that a thread updates together.
template <class Gradient, class Weight>
inline constexpr int kUpdatePack =
    std::is_same_v<Weight, NoWeight> ? kPack<Gradient, float> : kPack<Gradient, float, Weight>;

// Packs begin at multiples of their size from the first element: each has one parameter group.
template <class Gradient, class Weight, class Arguments>
Alignment UpdateAlignment(const Arguments& a, int64_t first) {
  Alignment alignment(first);
  alignment.Include(static_cast<const Gradient*>(a.gradient));
  alignment.Include(a.master);
  if constexpr (!std::is_same_v<Weight, NoWeight>) {
    alignment.Include(static_cast<Weight*>(a.weight));
  }
  return alignment;
}

template <int kWidth, class Weight>
__device__ __forceinline__ void StoreWeight(const float (&values)[kWidth], void* weight,
                                            int64_t i) {
  if constexpr (!std::is_same_v<Weight, NoWeight>) {
    StoreElements(values, static_cast<Weight*>(weight) + i);
  }
}

}  // namespace zero::cuda
