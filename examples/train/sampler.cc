#include "examples/train/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace zero::train {

double Sampler::Uniform() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }

int32_t Sampler::Draw(absl::Span<const float> logits) {
  const auto finite = [&](int32_t token) {
    const float logit = logits[static_cast<size_t>(token)];
    return std::isfinite(logit) ? static_cast<double>(logit)
                                : -std::numeric_limits<double>::infinity();
  };
  std::vector<int32_t> tokens(logits.size());
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i);
  std::stable_sort(tokens.begin(), tokens.end(),
                   [&](int32_t a, int32_t b) { return finite(a) > finite(b); });
  if (temperature_ == 0) return tokens.front();
  if (top_k_ > 0 && static_cast<size_t>(top_k_) < tokens.size()) {
    tokens.resize(static_cast<size_t>(top_k_));
  }

  const double largest = finite(tokens.front());
  std::vector<double> weights;
  double sum = 0;
  for (const int32_t token : tokens) {
    weights.push_back(std::exp((finite(token) - largest) / temperature_));
    sum += weights.back();
  }
  double left = Uniform() * sum;
  for (size_t i = 0; i < tokens.size(); ++i) {
    left -= weights[i];
    if (left < 0) return tokens[i];
  }
  return tokens.front();  // rounding, or nothing finite
}

}  // namespace zero::train
