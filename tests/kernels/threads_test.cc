#include <limits>

#include "tests/kernels/update_test_util.h"

namespace zero {
namespace {

// Large enough to be shared out over the threads of a pool, and no multiple of their pieces.
constexpr int64_t kLarge = (1 << 17) + 2112;

TEST_CASE("Adam: several streams on one pool give the scalar formula's bits", "[kernels][thread]") {
  ThreadPool pool(3);
  std::vector<std::unique_ptr<KernelRun>> runs;
  std::vector<UpdateState> states;
  for (int i = 0; i < 2; ++i) {
    runs.push_back(std::make_unique<KernelRun>(&pool));
    states.emplace_back(i == 0 ? UpdateTypes{DType::kBF16, Masters::kBF16}
                               : UpdateTypes{DType::kF32, Masters::kNone},
                        kLarge, i);
  }
  std::vector<UpdateState> expected = states;
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < 2; ++i) REQUIRE_OK(Adam(runs[i]->stream(), states[i].Adam(*runs[i])));
  }
  for (int i = 0; i < 2; ++i) {
    runs[i]->Finish();
    expected[i].ScalarAdam();
    expected[i].ScalarAdam();
    CHECK(states[i].Difference(expected[i]) == "");
  }
}

TEST_CASE("Norm: the bits do not depend on the number of threads", "[kernels][thread]") {
  Elements x(DType::kBF16, RandomFloats(kLarge + 57, 51), 1);
  x.Set(kLarge - 3000, std::numeric_limits<float>::infinity());
  x.Set(kLarge - 1, std::numeric_limits<float>::infinity());
  Elements finite(DType::kF32, RandomFloats(kLarge + 57, 52), 3);
  std::vector<double> sums;
  for (int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    KernelRun run(&pool);
    KernelRun other(&pool);
    std::vector<NormPartial> scratch(NormChunks(x.size())), scratch2(NormChunks(x.size()));
    NormPartial counted, sum;
    REQUIRE_OK(
        Norm(run.stream(), run.On(x), x.type(), x.size(), run.On(scratch), run.On(&counted)));
    REQUIRE_OK(Norm(other.stream(), other.On(finite), finite.type(), x.size(), other.On(scratch2),
                    other.On(&sum)));
    run.Finish();
    other.Finish();
    CHECK(counted.non_finite == 2);
    CHECK(counted.first_non_finite == kLarge - 3000);
    sums.push_back(sum.sum_of_squares);
  }
  CHECK(sums[0] > 0);
  CHECK(sums[0] == sums[1]);
  CHECK(sums[0] == sums[2]);
}

TEST_CASE("Cast, Add, OrderedSum, Sgd: one stream on a pool runs them in order",
          "[kernels][thread]") {
  ThreadPool pool(3);
  KernelRun run(&pool);
  Elements narrow(DType::kBF16, RandomFloats(2 * kLarge, 53));
  Elements wide(DType::kF32, kLarge);
  UpdateState state({DType::kF32, Masters::kSplit}, kLarge, 0);
  UpdateState expected = state;
  OrderedSumArguments sum;
  sum.parts = run.On(narrow);
  sum.part_type = DType::kBF16;
  sum.part_count = 2;
  sum.part_stride = kLarge;
  sum.out = run.On(wide);
  sum.n = kLarge;
  // gradient = part 0, + (part 0 + part 1), x 0.5
  REQUIRE_OK(Cast(run.stream(), run.On(narrow), DType::kBF16, run.On(state.gradient), DType::kF32,
                  kLarge));
  REQUIRE_OK(OrderedSum(run.stream(), sum));
  REQUIRE_OK(
      Add(run.stream(), run.On(wide), DType::kF32, run.On(state.gradient), DType::kF32, kLarge));
  REQUIRE_OK(Scale(run.stream(), run.On(state.gradient), DType::kF32, 0.5f, kLarge));
  REQUIRE_OK(Sgd(run.stream(), state.Sgd(run)));
  run.Finish();
  for (int64_t i = 0; i < kLarge; ++i) {
    const float part0 = narrow.Get(i);
    const float parts = part0 + narrow.Get(kLarge + i);
    expected.gradient.Set(i, (part0 + parts) * 0.5f);
  }
  expected.ScalarSgd();
  CHECK(state.Difference(expected) == "");
}

}  // namespace
}  // namespace zero
