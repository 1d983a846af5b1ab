#include "examples/llama/rope.h"

#include <cmath>
#include <numbers>

namespace zero::llama {
namespace {

double Llama3Frequency(const RopeScaling& rope, double frequency) {
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < original / rope.high_freq_factor) return frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  const double kept = (original / wavelength - rope.low_freq_factor) /
                      (rope.high_freq_factor - rope.low_freq_factor);
  return kept * frequency + (1 - kept) * frequency / rope.factor;
}

}  // namespace

std::vector<double> RopeFrequencies(const LlamaConfig& config) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < config.head_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim);
    double frequency = std::pow(config.rope_theta, exponent);
    switch (config.rope.kind) {
      case RopeKind::kDefault:
        break;
      case RopeKind::kLinear:
        frequency /= config.rope.factor;
        break;
      case RopeKind::kLlama3:
        frequency = Llama3Frequency(config.rope, frequency);
        break;
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

RopeTable MakeRopeTable(const LlamaConfig& config, int64_t positions) {
  const std::vector<double> frequencies = RopeFrequencies(config);
  RopeTable table;
  table.cos.reserve(frequencies.size() * static_cast<size_t>(positions));
  table.sin.reserve(table.cos.capacity());
  for (int64_t position = 0; position < positions; ++position) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      table.cos.push_back(static_cast<float>(std::cos(angle)));
      table.sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

}  // namespace zero::llama
