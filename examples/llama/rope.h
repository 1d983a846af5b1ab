// The angles of the rotary embedding.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/llama/config.h"

namespace zero::llama {

// head_dim / 2 angles per position: theta^(-2 i / head_dim), changed as config.rope says. kLinear
// divides all by the factor (Chen et al., arXiv 2306.15595); kLlama3 by a factor that depends on
// the wavelength (Llama 3.1, arXiv 2407.21783).
std::vector<double> RopeFrequencies(const LlamaConfig& config);

// cos and sin of position * frequency, [positions, head_dim / 2]: computed in double from whole
// positions, then rounded. In 16 bits neighbouring positions would fall together.
struct RopeTable {
  std::vector<float> cos, sin;
};
RopeTable MakeRopeTable(const LlamaConfig& config, int64_t positions);

}  // namespace zero::llama
