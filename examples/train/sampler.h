// Which token comes next.
#pragma once

#include <cstdint>
#include <random>

#include "absl/types/span.h"

namespace zero::train {

// Draws tokens from logits: softmax(logits / temperature) over the `top_k` largest. The same
// sequence for the same seed on every machine.
class Sampler {
 public:
  // `temperature` 0 always takes the largest; `top_k` 0 keeps all.
  Sampler(double temperature, int64_t top_k, uint64_t seed)
      : temperature_(temperature), top_k_(top_k), random_(seed) {}

  // Ties: the lower token first. Logits that are not finite are never drawn, unless all are.
  int32_t Draw(absl::Span<const float> logits);

 private:
  double Uniform();  // in [0, 1)

  const double temperature_;
  const int64_t top_k_;
  std::mt19937_64 random_;  // its sequence is part of the C++ standard
};

}  // namespace zero::train
