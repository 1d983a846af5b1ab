// Vector arithmetic on every SIMD target that this CPU has.
#include <cmath>

#include "tests/examples/simd_targets.h"
#include "tests/examples/tensor.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/examples/llama_simd_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "examples/llama/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zero::llama::HWY_NAMESPACE {

void RunExp(const float* x, float* y, size_t n) {
  ForVectors(n, [=](size_t i, auto part) HWY_ATTR { Store(Exp(Load(x + i, part)), y + i, part); });
}
void RunRound(const float* x, BFloat16* y, size_t n) {
  ForVectors(n, [=](size_t i, auto part) HWY_ATTR { Store(Load(x + i, part), y + i, part); });
}
void RunWiden(const BFloat16* x, float* y, size_t n) {
  ForVectors(n, [=](size_t i, auto part) HWY_ATTR { Store(Load(x + i, part), y + i, part); });
}

}  // namespace zero::llama::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::llama {

HWY_EXPORT(RunExp);
HWY_EXPORT(RunRound);
HWY_EXPORT(RunWiden);

namespace {

TEST_CASE("Exp: the relative error stays below 3e-7 over the normal range", "[examples][llama]") {
  std::vector<float> x, y;
  for (double at = -87.3; at < 88.7; at += 0.000731) x.push_back(static_cast<float>(at));
  y.resize(x.size());
  OnEachTarget([&] {
    HWY_DYNAMIC_DISPATCH(RunExp)(x.data(), y.data(), x.size());
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      worst = std::max(worst, std::abs(y[i] - exact) / exact);
    }
    CAPTURE(worst);
    CHECK(worst < 3e-7);
  });
}

TEST_CASE("Exp: keeps NaN, ends at zero and at infinity", "[examples][llama]") {
  const std::vector<float> x = {NAN, -INFINITY, -1e30f, -88, 0, 90, 1e30f, INFINITY};
  std::vector<float> y(x.size());
  OnEachTarget([&] {
    HWY_DYNAMIC_DISPATCH(RunExp)(x.data(), y.data(), x.size());
    CHECK(std::isnan(y[0]));
    CHECK(std::vector<float>(y.begin() + 1, y.begin() + 5) == std::vector<float>{0, 0, 0, 1});
    CHECK(y[5] > 1e38f);
    CHECK(std::vector<float>(y.begin() + 6, y.end()) == std::vector<float>{INFINITY, INFINITY});
  });
}

TEST_CASE("Vectors round to bf16 and back as the scalar code does", "[examples][llama]") {
  std::vector<float> x = {0,
                          -0.0f,
                          NAN,
                          -NAN,
                          INFINITY,
                          -INFINITY,
                          3.4e38f,
                          1e-40f,
                          std::bit_cast<float>(0x7FFFFFFFu),
                          std::bit_cast<float>(0xFF800001u)};
  std::mt19937 generator(7);
  while (x.size() < 5003) x.push_back(std::bit_cast<float>(uint32_t(generator())));
  std::vector<BFloat16> rounded(x.size());
  std::vector<float> back(x.size());
  OnEachTarget([&] {
    HWY_DYNAMIC_DISPATCH(RunRound)(x.data(), rounded.data(), x.size());
    HWY_DYNAMIC_DISPATCH(RunWiden)(rounded.data(), back.data(), x.size());
    size_t wrong = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      wrong += rounded[i].bits != FromFloat<BFloat16>(x[i]).bits;
      wrong += std::bit_cast<uint32_t>(back[i]) != uint32_t{rounded[i].bits} << 16;
    }
    CHECK(wrong == 0);
  });
}

}  // namespace
}  // namespace zero::llama
#endif  // HWY_ONCE
