#include <limits>

#include "tests/kernels/kernel_test_util.h"

namespace zero {
namespace {

TEST_CASE("Add: every way to run gives the scalar formula's bits", "[kernels]") {
  const DType in_type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const DType sum_type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    for (int64_t n : Sizes()) {
      for (int64_t offset : {0, 1, 3}) {
        Elements in(in_type, RandomFloats(n, 1), offset);
        Elements sum(sum_type, RandomFloats(n, 2), 3 - offset);
        Elements expected = sum;
        for (int64_t i = 0; i < n; ++i) expected.Set(i, sum.Get(i) + in.Get(i));
        REQUIRE_OK(Add(run.stream(), run.On(in), in_type, run.On(sum), sum_type, n));
        run.Finish();
        INFO(variant << " n " << n << " offset " << offset);
        CHECK(sum.Difference(expected) == "");
      }
    }
  });
}

TEST_CASE("Add: adding an array to itself doubles it", "[kernels]") {
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  KernelRun run;
  Elements x(type, RandomFloats(2049, 3));
  Elements expected = x;
  for (int64_t i = 0; i < x.size(); ++i) expected.Set(i, 2 * x.Get(i));
  CHECK_OK(Add(run.stream(), run.On(x), type, run.On(x), type, x.size()));
  run.Finish();
  CHECK(x.Difference(expected) == "");
}

TEST_CASE("Add: infinities and NaNs stay what they are", "[kernels]") {
  const float inf = std::numeric_limits<float>::infinity();
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    std::vector<float> in(40, 1.0f);
    in[5] = inf;
    in[17] = std::numeric_limits<float>::quiet_NaN();
    in[39] = -inf;
    std::vector<float> old(40, 2.0f);
    old[39] = inf;
    Elements a(DType::kBF16, in);
    Elements sum(DType::kF32, old);
    CHECK_OK(Add(run.stream(), run.On(a), a.type(), run.On(sum), sum.type(), 40));
    run.Finish();
    INFO(variant);
    CHECK(sum.Get(5) == inf);
    CHECK(std::isnan(sum.Get(17)));
    CHECK(std::isnan(sum.Get(39)));
    CHECK(sum.Get(0) == 3.0f);
  });
}

TEST_CASE("Scale: every way to run gives the scalar formula's bits", "[kernels]") {
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    for (int64_t n : Sizes()) {
      for (int64_t offset : {0, 1, 3}) {
        Elements x(type, RandomFloats(n, 4), offset);
        Elements expected = x;
        for (int64_t i = 0; i < n; ++i) expected.Set(i, x.Get(i) * 0.3f);
        REQUIRE_OK(Scale(run.stream(), run.On(x), type, 0.3f, n));
        run.Finish();
        INFO(variant << " n " << n << " offset " << offset);
        CHECK(x.Difference(expected) == "");
      }
    }
  });
}

TEST_CASE("Scale: denormal results are not flushed to zero", "[kernels]") {
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    Elements x(DType::kF32, std::vector<float>(33, std::numeric_limits<float>::min()));
    CHECK_OK(Scale(run.stream(), run.On(x), x.type(), 0.25f, x.size()));
    run.Finish();
    INFO(variant);
    CHECK(x.Bits(0) == 0x00200000u);
    CHECK(x.Bits(32) == 0x00200000u);
  });
}

TEST_CASE("Fill: writes the rounded value n times and nothing around it", "[kernels]") {
  const DType type = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    for (int64_t n : Sizes()) {
      for (int64_t offset : {0, 1, 3}) {
        Elements x(type, n, offset);
        Elements expected(type, std::vector<float>(n, 0.1f), offset);
        REQUIRE_OK(Fill(run.stream(), run.On(x), type, 0.1f, n));
        run.Finish();
        INFO(variant << " n " << n << " offset " << offset);
        CHECK(x.Difference(expected) == "");
      }
    }
  });
}

}  // namespace
}  // namespace zero
