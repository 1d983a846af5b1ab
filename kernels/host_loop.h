// How the loops of the host kernels are shared out.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace zero {

// Elements of a parameter group's byte.
inline constexpr int64_t kGroupElements = 64;

// Elements of the smallest piece: some 10 us of work, so that waking a thread pays.
inline constexpr int64_t kGrain = 1 << 15;
static_assert(kGrain % kGroupElements == 0 && kGrain % kNormChunk == 0);

}  // namespace zero
