// Initial values that do not depend on stage, ranks or threads.
#pragma once

#include <cstdint>
#include <string>

#include "device/thread_pool.h"
#include "zero/sharded_optimizer.h"

namespace zero {

// A fixed 64-bit hash of a parameter's name (FNV-1a), for values that depend on it.
uint64_t NameHash(const std::string& name);

// Element i of the standard normal sequence of (seed, name): a pure function of its arguments.
// Philox-4x32-10 (Salmon et al., SC 2011) with key seed and counter (i / 2, hash of the name), then
// Box-Muller in double.
float NormalAt(uint64_t seed, const std::string& name, int64_t element);
// Elements [first, first + out.size()) of the same sequence, times `deviation`.
void FillNormal(uint64_t seed, const std::string& name, int64_t first, float deviation,
                absl::Span<float> out);

// A Source for ShardedOptimizer::Write(State::kMaster, ...): one-dimensional parameters are 1, the
// others normal with `deviation(parameter)`. The threads of `pool`, which outlives the source,
// share the work; null: the caller's alone.
Source NormalInitializer(uint64_t seed, std::function<float(const Parameter&)> deviation,
                         ThreadPool* pool = nullptr);

}  // namespace zero
