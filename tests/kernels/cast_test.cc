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

TEST_CASE("Cast: every way to run rounds fp32 to bf16 as the scalar formula", "[kernels]") {
  const int64_t offset = GENERATE(0, 1, 3);
  Elements in = HardFloats(offset);
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    INFO(variant);
    Elements out(DType::kBF16, in.size(), offset);
    CHECK_OK(Cast(run.stream(), run.On(in), in.type(), run.On(out), out.type(), in.size()));
    run.Finish();
    int64_t wrong = 0;
    for (int64_t i = 0; i < in.size(); ++i) {
      if (out.Bits(i) != ToBFloat16(FloatOf(in.Bits(i))).bits) ++wrong;
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("Cast: every bf16 value becomes exactly its fp32 in every way to run", "[kernels]") {
  Elements in(DType::kBF16, 0x10000, 1);
  for (int64_t i = 0; i < in.size(); ++i) in.SetBits(i, static_cast<uint32_t>(i));
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    INFO(variant);
    Elements wide(DType::kF32, in.size(), 3);
    CHECK_OK(Cast(run.stream(), run.On(in), in.type(), run.On(wide), wide.type(), in.size()));
    run.Finish();
    int64_t wrong = 0;
    for (int64_t i = 0; i < in.size(); ++i) {
      if (wide.Bits(i) != static_cast<uint32_t>(i) << 16) ++wrong;
    }
    CHECK(wrong == 0);
  });
}

// fp32 bits around every fp16 value and every tie, subnormals and what overflows among them.
Elements HardFloatsForFloat16(int64_t offset) {
  std::vector<uint32_t> bits;
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const uint32_t wide = BitsOf(ToFloat(Float16{static_cast<uint16_t>(half)}));
    for (const uint32_t low : {0x0u, 0x1u, 0xFFFu, 0x1000u, 0x1001u, 0x1FFFu}) {
      bits.push_back(wide + low);
    }
  }
  for (uint32_t i = 0; i < 0x8000; ++i) bits.push_back(i * 0x20001u);  // all binades
  Elements in(DType::kF32, static_cast<int64_t>(bits.size()), offset);
  for (int64_t i = 0; i < in.size(); ++i) in.SetBits(i, bits[i]);
  return in;
}

TEST_CASE("Cast: every way to run rounds fp32 to fp16 as the scalar formula", "[kernels]") {
  const int64_t offset = GENERATE(0, 3);
  Elements in = HardFloatsForFloat16(offset);
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    INFO(variant);
    Elements out(DType::kF16, in.size(), offset);
    CHECK_OK(Cast(run.stream(), run.On(in), in.type(), run.On(out), out.type(), in.size()));
    run.Finish();
    int64_t wrong = 0;
    for (int64_t i = 0; i < in.size(); ++i) {
      if (out.Bits(i) != ToFloat16(FloatOf(in.Bits(i))).bits) ++wrong;
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("Cast: every fp16 value becomes exactly its fp32 in every way to run", "[kernels]") {
  Elements in(DType::kF16, 0x10000, 1);
  for (int64_t i = 0; i < in.size(); ++i) in.SetBits(i, static_cast<uint32_t>(i));
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    INFO(variant);
    Elements wide(DType::kF32, in.size(), 3);
    CHECK_OK(Cast(run.stream(), run.On(in), in.type(), run.On(wide), wide.type(), in.size()));
    run.Finish();
    int64_t wrong = 0;
    for (int64_t i = 0; i < in.size(); ++i) {
      if (wide.Bits(i) != BitsOf(ToFloat(Float16{static_cast<uint16_t>(i)}))) ++wrong;
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("Cast: writes n elements and nothing around them", "[kernels]") {
  const DType from = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const DType to = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    for (int64_t n : Sizes()) {
      for (int64_t offset : {0, 1, 3}) {
        Elements in(from, RandomFloats(n, 7), offset);
        Elements out(to, n, 2 * offset);
        Elements expected(to, n, 2 * offset);
        for (int64_t i = 0; i < n; ++i) expected.Set(i, in.Get(i));
        REQUIRE_OK(Cast(run.stream(), run.On(in), from, run.On(out), to, n));
        run.Finish();
        INFO(variant << " n " << n << " offset " << offset);
        CHECK(out.Difference(expected) == "");
      }
    }
  });
}

TEST_CASE("Cast: fp32 to fp32 keeps every bit of a NaN", "[kernels]") {
  KernelRun run;
  Elements in(DType::kF32, 70);
  for (int64_t i = 0; i < in.size(); ++i) in.SetBits(i, 0x7F800001u + static_cast<uint32_t>(i));
  ForEachVariant([&](const std::string& variant) {
    Elements out(DType::kF32, in.size());
    CHECK_OK(Cast(run.stream(), run.On(in), in.type(), run.On(out), out.type(), in.size()));
    run.Finish();
    INFO(variant);
    CHECK(out.bytes() == in.bytes());
  });
}

}  // namespace
}  // namespace zero
