#include "zero/initializer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "device/host_device.h"

namespace zero {
namespace {

constexpr int64_t kFilledElements = 4096;  // by one thread at a time

using Block = std::array<uint32_t, 4>;

// Philox-4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011.
Block Philox(Block counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// In (0, 1): the logarithm below must not see 0.
double Uniform(uint32_t high, uint32_t low) {
  const uint64_t bits = (uint64_t{high} << 20) ^ (low >> 12);  // 52 bits
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

// Elements 2 x pair and 2 x pair + 1.
struct Polar {
  double radius = 0;
  double angle = 0;
  float even() const { return static_cast<float>(radius * std::cos(angle)); }
  float odd() const { return static_cast<float>(radius * std::sin(angle)); }
};

Polar PolarFor(uint64_t key, uint64_t name_hash, int64_t pair) {
  const auto counter = static_cast<uint64_t>(pair);
  const Block random =
      Philox({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
              static_cast<uint32_t>(name_hash), static_cast<uint32_t>(name_hash >> 32)},
             static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
  constexpr double kTwoPi = 6.283185307179586476925;
  return {std::sqrt(-2 * std::log(Uniform(random[0], random[1]))),
          kTwoPi * Uniform(random[2], random[3])};
}

float NormalFor(uint64_t key, uint64_t name_hash, int64_t element) {
  const Polar pair = PolarFor(key, name_hash, element / 2);
  return element % 2 == 0 ? pair.even() : pair.odd();
}

}  // namespace

// Any fixed hash will do, but it may never change.
uint64_t NameHash(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

float NormalAt(uint64_t seed, const std::string& name, int64_t element) {
  return NormalFor(seed, NameHash(name), element);
}

void FillNormal(uint64_t seed, const std::string& name, int64_t first, float deviation,
                absl::Span<float> out) {
  const uint64_t hash = NameHash(name);
  size_t i = 0;
  if (first % 2 != 0 && !out.empty()) out[i++] = deviation * NormalFor(seed, hash, first);
  for (; i + 1 < out.size(); i += 2) {
    const Polar pair = PolarFor(seed, hash, (first + static_cast<int64_t>(i)) / 2);
    out[i] = deviation * pair.even();
    out[i + 1] = deviation * pair.odd();
  }
  if (i < out.size()) {
    out[i] = deviation * NormalFor(seed, hash, first + static_cast<int64_t>(i));
  }
}

Source NormalInitializer(uint64_t seed, std::function<float(const Parameter&)> deviation,
                         ThreadPool* pool) {
  return [seed, deviation = std::move(deviation), pool](const Parameter& parameter, int64_t first,
                                                        absl::Span<float> out) {
    if (parameter.shape.size() == 1) {
      std::fill(out.begin(), out.end(), 1.0f);
      return absl::OkStatus();
    }
    const float scale = deviation(parameter);
    ParallelFor(
        pool, static_cast<int64_t>(out.size()), kFilledElements, [&](int64_t begin, int64_t end) {
          FillNormal(seed, parameter.name, first + begin, scale,
                     out.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
        });
    return absl::OkStatus();
  };
}

}  // namespace zero
