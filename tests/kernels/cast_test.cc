#include "tests/kernels/kernel_test_util.h"

namespace zero {
namespace {

// fp32 bits around every bf16 value: infinities, NaNs, denormals, ties and their neighbours.
Elements HardFloats(int64_t offset) {
  Elements in(DType::kF32, 4 * 0x10000, offset);
  const uint32_t low[] = {0, 0x7FFF, 0x8000, 0x8001};
  for (int64_t i = 0; i < in.size(); ++i) {
    in.SetBits(i, static_cast<uint32_t>(i / 4) << 16 | low[i % 4]);
  }
  return in;
}

TEST_CASE("Cast: every SIMD target rounds fp32 to bf16 as the scalar formula", "[kernels]") {
  const int64_t offset = GENERATE(0, 1, 3);
  Elements in = HardFloats(offset);
  HostRun run;
  ForEachTarget([&](const std::string& target) {
    INFO(target);
    Elements out(DType::kBF16, in.size(), offset);
    CHECK_OK(Cast(run.stream(), in.data(), in.type(), out.data(), out.type(), in.size()));
    run.Finish();
    int64_t wrong = 0;
    for (int64_t i = 0; i < in.size(); ++i) {
      if (out.Bits(i) != ToBFloat16(FloatOf(in.Bits(i))).bits) ++wrong;
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("Cast: every bf16 value becomes exactly its fp32 on every SIMD target", "[kernels]") {
  Elements in(DType::kBF16, 0x10000, 1);
  for (int64_t i = 0; i < in.size(); ++i) in.SetBits(i, static_cast<uint32_t>(i));
  HostRun run;
  ForEachTarget([&](const std::string& target) {
    INFO(target);
    Elements wide(DType::kF32, in.size(), 3);
    CHECK_OK(Cast(run.stream(), in.data(), in.type(), wide.data(), wide.type(), in.size()));
    run.Finish();
    int64_t wrong = 0;
    for (int64_t i = 0; i < in.size(); ++i) {
      if (wide.Bits(i) != static_cast<uint32_t>(i) << 16) ++wrong;
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("Cast: writes n elements and nothing around them", "[kernels]") {
  const DType from = GENERATE(DType::kF32, DType::kBF16);
  const DType to = GENERATE(DType::kF32, DType::kBF16);
  HostRun run;
  ForEachTarget([&](const std::string& target) {
    for (int64_t n : Sizes()) {
      for (int64_t offset : {0, 1, 3}) {
        Elements in(from, RandomFloats(n, 7), offset);
        Elements out(to, n, 2 * offset);
        Elements expected(to, n, 2 * offset);
        for (int64_t i = 0; i < n; ++i) expected.Set(i, in.Get(i));
        REQUIRE_OK(Cast(run.stream(), in.data(), from, out.data(), to, n));
        run.Finish();
        INFO(target << " n " << n << " offset " << offset);
        CHECK(out.Difference(expected) == "");
      }
    }
  });
}

TEST_CASE("Cast: fp32 to fp32 keeps every bit of a NaN", "[kernels]") {
  HostRun run;
  Elements in(DType::kF32, 70);
  for (int64_t i = 0; i < in.size(); ++i) in.SetBits(i, 0x7F800001u + static_cast<uint32_t>(i));
  ForEachTarget([&](const std::string& target) {
    Elements out(DType::kF32, in.size());
    CHECK_OK(Cast(run.stream(), in.data(), in.type(), out.data(), out.type(), in.size()));
    run.Finish();
    INFO(target);
    CHECK(out.bytes() == in.bytes());
  });
}

}  // namespace
}  // namespace zero
