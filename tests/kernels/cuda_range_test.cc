// CUDA's kernels at indices that 32 bits do not hold: the last elements of a range whose beginning
// is not there.
#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/cuda_kernels.h"
#include "kernels/norm_math.h"
#include "tests/kernels/update_test_util.h"

namespace zero {
namespace {

constexpr DType kF32 = DType::kF32;
constexpr DType kBF16 = DType::kBF16;
constexpr DType kF16 = DType::kF16;

// Where an array would begin of which `data` is the part from element `first` on.
template <class T>
T* Before(T* data, int64_t first) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(data) -
                              static_cast<uintptr_t>(first) * sizeof(T));
}
void* Before(void* data, DType type, int64_t first) {
  return Before(static_cast<char*>(data), first * SizeOf(type));
}

// Indices around which signed and unsigned numbers of 32 bits end.
std::vector<int64_t> Limits() { return {int64_t{1} << 31, int64_t{1} << 32}; }

constexpr int64_t kBelow = 8192;  // elements of an array that lie below a limit

TEST_CASE("Cast, Add, Scale, Fill: the last elements of more than 2^31 are right", "[kernels]") {
  const DType in_type = GENERATE(kF32, kBF16, kF16);
  const DType out_type = GENERATE(kF32, kBF16, kF16);
  for (int64_t limit : Limits()) {
    const int64_t first = limit - kBelow;
    const int64_t n = limit + 1003;
    const int64_t part = n - first;
    CAPTURE(Name(in_type), Name(out_type), n);
    KernelRun run;
    const Stream& stream = run.stream();
    Elements in(in_type, RandomFloats(part, 1));
    Elements cast(out_type, part), sum(out_type, RandomFloats(part, 2)), scaled = sum;
    Elements filled(out_type, part);
    Elements cast_expected = cast, sum_expected = sum, scaled_expected = sum;
    Elements filled_expected(out_type, std::vector<float>(static_cast<size_t>(part), 0.1f));
    for (int64_t i = 0; i < part; ++i) {
      cast_expected.Set(i, in.Get(i));
      sum_expected.Set(i, sum.Get(i) + in.Get(i));
      scaled_expected.Set(i, scaled.Get(i) * 0.3f);
    }
    const void* const from = Before(run.On(in), in_type, first);
    REQUIRE_OK(cuda::Cast(stream, from, in_type, Before(run.On(cast), out_type, first), out_type, n,
                          first));
    REQUIRE_OK(
        cuda::Add(stream, from, in_type, Before(run.On(sum), out_type, first), out_type, n, first));
    REQUIRE_OK(
        cuda::Scale(stream, Before(run.On(scaled), out_type, first), out_type, 0.3f, n, first));
    REQUIRE_OK(
        cuda::Fill(stream, Before(run.On(filled), out_type, first), out_type, 0.1f, n, first));
    run.Finish();
    CHECK(cast.Difference(cast_expected) == "");
    CHECK(sum.Difference(sum_expected) == "");
    CHECK(scaled.Difference(scaled_expected) == "");
    CHECK(filled.Difference(filled_expected) == "");
  }
}

TEST_CASE("OrderedSum: the last elements of more than 2^31 are right", "[kernels]") {
  for (int64_t limit : Limits()) {
    const int64_t first = limit - kBelow;
    const int64_t n = limit + 1003;
    const int64_t part = n - first;
    // The parts lie closer than they are long: they may overlap, being read only.
    const int64_t stride = part + 5;
    KernelRun run;
    Elements parts(kBF16, RandomFloats(3 * stride, 3));
    Elements out(kF32, part), expected = out;
    for (int64_t i = 0; i < part; ++i) {
      expected.Set(i, (parts.Get(i) + parts.Get(stride + i)) + parts.Get(2 * stride + i));
    }
    OrderedSumArguments a;
    a.parts = Before(run.On(parts), kBF16, first);
    a.part_type = kBF16;
    a.part_count = 3;
    a.part_stride = stride;
    a.out = Before(run.On(out), kF32, first);
    a.n = n;
    REQUIRE_OK(cuda::OrderedSum(run.stream(), a, first));
    run.Finish();
    CHECK(out.Difference(expected) == "");
  }
}

TEST_CASE("OrderedSum: parts further apart than 2^31 elements are found", "[kernels]") {
  // Two parts of one array, with nothing between them: the second is taken for the first of a copy.
  constexpr int64_t kN = 1000;
  KernelRun run;
  Elements near(kF32, RandomFloats(kN, 4)), far(kF32, RandomFloats(kN, 5)), out(kF32, kN);
  Elements expected = out;
  for (int64_t i = 0; i < kN; ++i) expected.Set(i, near.Get(i) + far.Get(i));
  const float* first = run.FloatsOn(near);
  const float* second = run.FloatsOn(far);
  if (first > second) std::swap(first, second);
  OrderedSumArguments a;
  a.parts = first;
  a.part_count = 2;
  a.part_stride = (reinterpret_cast<uintptr_t>(second) - reinterpret_cast<uintptr_t>(first)) / 4;
  a.out = run.On(out);
  a.n = kN;
  REQUIRE_OK(cuda::OrderedSum(run.stream(), a));
  run.Finish();
  CHECK(out.Difference(expected) == "");
}

TEST_CASE("Adam, Sgd, Lion: the last elements of more than 2^31 are right", "[kernels]") {
  const std::string optimizer = GENERATE("adam", "sgd", "lion");
  const Masters masters = GENERATE(Masters::kBF16, Masters::kSplit, Masters::kNone);
  for (int64_t limit : Limits()) {
    const int64_t first = limit - kBelow;
    const int64_t n = limit + 1024;
    KernelRun run;
    UpdateState state({kBF16, masters}, n - first, 0);
    state.first_element = 0;
    UpdateState expected = state;
    expected.first_element = first;
    const auto move = [&](auto a) {
      a.gradient = Before(run.On(state.gradient), kBF16, first);
      MasterMemory& w = a.weights;
      if (w.master != nullptr) w.master = Before(w.master, first);
      if (w.remainder != nullptr) w.remainder = Before(w.remainder, first);
      w.weight = Before(w.weight, kBF16, first);
      a.moment1 = Before(a.moment1, first);
      a.groups = Before(a.groups, first / 64);
      a.n = n;
      return a;
    };
    if (optimizer == "adam") {
      AdamArguments a = move(state.Adam(run));
      a.moment2 = Before(a.moment2, first);
      REQUIRE_OK(cuda::Adam(run.stream(), a, first));
      expected.ScalarAdam();
    } else if (optimizer == "sgd") {
      REQUIRE_OK(cuda::Sgd(run.stream(), move(state.Sgd(run)), first));
      expected.ScalarSgd();
    } else {
      REQUIRE_OK(cuda::Lion(run.stream(), move(state.Lion(run)), first));
      expected.ScalarLion();
    }
    run.Finish();
    CAPTURE(optimizer, limit, state.types.ToString());
    CHECK(state.Difference(expected) == "");
  }
}

TEST_CASE("Norm: the last chunks of more than 2^31 elements are right", "[kernels]") {
  constexpr int64_t kLimit = int64_t{1} << 31;
  constexpr int64_t kFirst = kLimit - kBelow;
  constexpr int64_t kSize = kLimit + 1003;
  const DType type = GENERATE(kF32, kBF16, kF16);
  KernelRun run;
  Elements x(type, RandomFloats(kSize - kFirst, 6));
  x.Set(kBelow + 70, std::numeric_limits<float>::infinity());
  x.Set(kBelow + 900, std::numeric_limits<float>::quiet_NaN());
  std::vector<NormPartial> scratch(NormChunks(kSize));
  scratch[3].sum_of_squares = 5;
  NormPartial out;
  REQUIRE_OK(cuda::Norm(run.stream(), Before(run.On(x), type, kFirst), type, kSize, run.On(scratch),
                        run.On(&out), kFirst));
  run.Finish();
  CHECK(out.non_finite == 2);
  CHECK(out.first_non_finite == kLimit + 70);
  CHECK(scratch[3].sum_of_squares == 5);
  for (int64_t c = 0; c < NormChunks(x.size()); ++c) {
    std::vector<float> values;
    for (int64_t i = c * kNormChunk; i < std::min(x.size(), (c + 1) * kNormChunk); ++i) {
      values.push_back(x.Get(i));
    }
    const NormPartial expected =
        NormChunkMath(values.data(), static_cast<int64_t>(values.size()), kFirst + c * kNormChunk);
    const NormPartial& got = scratch[kFirst / kNormChunk + c];
    CAPTURE(c);
    if (expected.non_finite == 0) CHECK(got.sum_of_squares == expected.sum_of_squares);
    CHECK(got.non_finite == expected.non_finite);
    CHECK(got.first_non_finite == expected.first_non_finite);
  }
}

TEST_CASE("Norm: a hundred thousand chunks are added in order", "[kernels]") {
  KernelRun run;
  std::vector<NormPartial> chunks(100'000);
  const std::vector<float> values = RandomFloats(static_cast<int64_t>(chunks.size()), 8);
  for (size_t i = 0; i < chunks.size(); ++i) chunks[i].sum_of_squares = std::abs(values[i]);
  // One chunk of one element is computed; the others are there.
  const int64_t first = static_cast<int64_t>(chunks.size() - 1) * kNormChunk;
  std::vector<float> last = {3};
  NormPartial out;
  REQUIRE_OK(cuda::Norm(run.stream(), Before(run.On(last), first), kF32, first + 1, run.On(chunks),
                        run.On(&out), first));
  run.Finish();
  CHECK(chunks.back().sum_of_squares == 9);
  CHECK(out.sum_of_squares == AddChunksMath(chunks.data(), 100'000).sum_of_squares);
  CHECK(out.non_finite == 0);
  CHECK(out.first_non_finite == INT64_MAX);
}

TEST_CASE("ZeroRanges: the last bytes of more than 2^32 are zeroed", "[kernels]") {
  for (int64_t limit : Limits()) {
    const int64_t first = limit - kBelow;
    KernelRun run;
    std::vector<unsigned char> bytes(kBelow + 1003 + 1, 0xA5);
    REQUIRE_OK(
        cuda::ZeroRanges(run.stream(), {{Before(run.On(bytes), first), limit + 1003}}, first));
    run.Finish();
    CHECK(std::count(bytes.begin(), bytes.end(), 0) == kBelow + 1003);
    CHECK(bytes.back() == 0xA5);
  }
}

}  // namespace
}  // namespace zero
