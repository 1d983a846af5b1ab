#include "examples/llama/rope.h"

#include "tests/catch.h"
#include "tests/examples/reference_model.h"

namespace zero::llama {
namespace {

LlamaConfig ConfigOf(const RopeScaling& rope, double theta) {
  LlamaConfig config;
  config.head_dim = 128;
  config.rope = rope;
  config.rope_theta = theta;
  return config;
}

TEST_CASE("Rope: cos and sin at positions up to 8191 are those of the formulas in double",
          "[examples][llama]") {
  const LlamaConfig config = GENERATE(ConfigOf({}, 10000), ConfigOf({RopeKind::kLinear, 4}, 100000),
                                      ConfigOf({RopeKind::kLlama3, 32, 1, 4, 8192}, 500000),
                                      ConfigOf({RopeKind::kLlama3, 8, 1, 4, 64}, 10000));
  const int64_t half = config.head_dim / 2;
  const RopeTable table = MakeRopeTable(config, 8192);
  REQUIRE(table.cos.size() == size_t(8192 * half));
  double worst = 0;
  for (const int64_t position : {0, 1, 4095, 8191}) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * reference::Frequency(config, i);
      worst = std::max(worst, std::abs(table.cos[position * half + i] - std::cos(angle)));
      worst = std::max(worst, std::abs(table.sin[position * half + i] - std::sin(angle)));
    }
  }
  CAPTURE(worst);
  CHECK(worst < 1e-7);
}

TEST_CASE("Rope: linear scaling by 4 puts position 4 p where position p was", "[examples][llama]") {
  const RopeTable plain = MakeRopeTable(ConfigOf({}, 100000), 16);
  const RopeTable scaled = MakeRopeTable(ConfigOf({RopeKind::kLinear, 4}, 100000), 64);
  for (int64_t i = 0; i < 64; ++i) {
    CHECK(scaled.cos[60 * 64 + i] == Approx(plain.cos[15 * 64 + i]).margin(1e-6));
    CHECK(scaled.sin[60 * 64 + i] == Approx(plain.sin[15 * 64 + i]).margin(1e-6));
  }
}

TEST_CASE("Rope: llama3 keeps short wavelengths, slows long ones down and joins the two",
          "[examples][llama]") {
  const std::vector<double> plain = RopeFrequencies(ConfigOf({}, 500000));
  const std::vector<double> scaled =
      RopeFrequencies(ConfigOf({RopeKind::kLlama3, 32, 1, 4, 8192}, 500000));
  int kept = 0, slowed = 0, between = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double ratio = plain[i] / scaled[i];
    (ratio == 1 ? kept : ratio == Approx(32) ? slowed : between) += 1;
    CHECK(ratio >= 1);
    CHECK(ratio <= 32 * (1 + 1e-12));
    if (i > 0) CHECK(scaled[i] < scaled[i - 1]);
  }
  // Wavelengths 2 pi 500000^(i / 64) below 2048, above 8192, and between.
  CHECK(kept == 29);
  CHECK(slowed == 29);
  CHECK(between == 6);
}

}  // namespace
}  // namespace zero::llama
