#include "kernels/host_sum.h"
#include "tests/kernels/kernel_test_util.h"

namespace zero {
namespace {

OrderedSumArguments Arguments(KernelRun& run, Elements* parts, int64_t count, int64_t stride,
                              Elements* out) {
  OrderedSumArguments a;
  a.parts = run.On(*parts);
  a.part_type = parts->type();
  a.part_count = count;
  a.part_stride = stride;
  a.out = run.On(*out);
  a.out_type = out->type();
  a.n = out->size();
  return a;
}

// The sum in rank order.
void ScalarSum(const Elements& parts, int64_t count, int64_t stride, bool accumulate,
               Elements* out) {
  for (int64_t i = 0; i < out->size(); ++i) {
    float sum = parts.Get(i);
    for (int64_t p = 1; p < count; ++p) sum = sum + parts.Get(p * stride + i);
    out->Set(i, accumulate ? out->Get(i) + sum : sum);
  }
}

TEST_CASE("OrderedSum: every way to run adds the parts in rank order", "[kernels]") {
  const int64_t count = GENERATE(1, 2, 3, 8);
  const bool accumulate = GENERATE(false, true);
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    for (DType part_type : Types()) {
      for (DType out_type : Types()) {
        for (int64_t n : {1, 3, 57, 64, 65, 2049}) {
          const int64_t stride = n + 5;
          Elements parts(part_type, RandomFloats(count * stride, 11), n % 4);
          Elements out(out_type, RandomFloats(n, 12), 1);
          Elements expected = out;
          ScalarSum(parts, count, stride, accumulate, &expected);
          OrderedSumArguments a = Arguments(run, &parts, count, stride, &out);
          a.accumulate = accumulate;
          REQUIRE_OK(OrderedSum(run.stream(), a));
          run.Finish();
          INFO(variant << " " << Name(part_type) << " to " << Name(out_type) << " n " << n);
          CHECK(out.Difference(expected) == "");
        }
      }
    }
  });
}

TEST_CASE("OrderedSum: another order of the parts gives other bits", "[kernels]") {
  // Otherwise the case above could not fail.
  Elements parts(DType::kF32, std::vector<float>{1e8f, -1e8f, 0.5f});
  Elements out(DType::kF32, 1);
  KernelRun run;
  CHECK_OK(OrderedSum(run.stream(), Arguments(run, &parts, 3, 1, &out)));
  run.Finish();
  CHECK(out.Get(0) == 0.5f);
  CHECK((parts.Get(2) + parts.Get(1)) + parts.Get(0) == 0.0f);
}

TEST_CASE("OrderedSum: one part is only converted, a negative zero too", "[kernels]") {
  KernelRun run;
  Elements parts(DType::kBF16, std::vector<float>(40, -0.0f));
  Elements out(DType::kF32, 40);
  CHECK_OK(OrderedSum(run.stream(), Arguments(run, &parts, 1, 40, &out)));
  run.Finish();
  CHECK(out.Bits(0) == 0x80000000u);
  CHECK(out.Bits(39) == 0x80000000u);
}

TEST_CASE("OrderedSum: the sum may replace one of its parts", "[kernels]") {
  const int64_t replaced = GENERATE(0, 2);
  constexpr int64_t kN = 2049;
  KernelRun run;
  Elements parts(DType::kF32, RandomFloats(3 * kN, 13));
  Elements expected(DType::kF32, kN);
  ScalarSum(parts, 3, kN, false, &expected);
  OrderedSumArguments a = Arguments(run, &parts, 3, kN, &expected);
  a.out = run.FloatsOn(parts) + replaced * kN;
  CHECK_OK(OrderedSum(run.stream(), a));
  run.Finish();
  int64_t wrong = 0;
  for (int64_t i = 0; i < kN; ++i) {
    if (parts.Bits(replaced * kN + i) != expected.Bits(i)) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("HostSum: parts anywhere give the bits of parts in a row", "[kernels]") {
  constexpr int64_t kCount = 3;
  for (DType part_type : Types()) {
    for (int64_t n : {1, 63, 64, 2049, 100000}) {
      CAPTURE(Name(part_type), n);
      const std::vector<float> values = RandomFloats(kCount * n, 14);
      Elements row(part_type, values);
      Elements expected(DType::kF32, RandomFloats(n, 15));
      Elements out = expected;
      ScalarSum(row, kCount, n, /*accumulate=*/true, &expected);
      std::vector<Elements> apart;
      std::vector<const void*> parts;
      for (int64_t p = kCount - 1; p >= 0; --p) {  // in memory the other way round
        const auto from = values.begin() + p * n;
        apart.emplace_back(part_type, std::vector<float>(from, from + n), p);
      }
      for (int64_t p = 0; p < kCount; ++p) parts.push_back(apart[kCount - 1 - p].data());
      ThreadPool pool(2);
      for (ThreadPool* shared : {static_cast<ThreadPool*>(nullptr), &pool}) {
        Elements sum = out;
        const HostSumArguments a{parts, part_type, sum.data(), DType::kF32, true, n};
        REQUIRE_OK(CheckHostSum(a));
        HostSum(a, shared);
        CHECK(sum.Difference(expected) == "");
      }
    }
  }
}

TEST_CASE("HostSum: arguments that it cannot add are refused by name", "[kernels]") {
  float memory[8] = {};
  const void* const part = memory;
  const HostSumArguments good{{&part, 1}, DType::kF32, memory + 4, DType::kF32, false, 4};
  CHECK_OK(CheckHostSum(good));
  const auto message = [](const HostSumArguments& a) {
    const absl::Status status = CheckHostSum(a);
    CHECK(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  HostSumArguments bad = good;
  bad.parts = {};
  CHECK(message(bad) == "OrderedSum: no parts");
  bad = good;
  bad.n = -1;
  CHECK_THAT(message(bad), ContainsSubstring("n is -1"));
  bad = good;
  bad.out = memory + 1;
  CHECK_THAT(message(bad), ContainsSubstring("out overlaps"));
  bad = good;
  bad.out = nullptr;
  CHECK_THAT(message(bad), ContainsSubstring("out is null"));
}

}  // namespace
}  // namespace zero
