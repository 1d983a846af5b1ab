// The committed values, as tests read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace zero::golden {

// Where the values are: the committed ones, or where the environment's ZERO_GOLDEN_VALUES says.
std::string Folder();

// <Folder>/<name>, parsed. A file that cannot be read fails the test.
nlohmann::json Read(const std::string& name);

// fp32 values written as their bits, 8 hexadecimal digits each.
std::vector<float> Floats(const nlohmann::json& words);

// How many fp32 values lie between two, which have the same sign or are zero.
int64_t UlpsBetween(float a, float b);

}  // namespace zero::golden
