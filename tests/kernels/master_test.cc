// The kinds of masters: what an update leaves in weights, and that the halves of a split one are
// as good as fp32.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "tests/kernels/update_test_util.h"

namespace zero {
namespace {

using Update = std::function<absl::Status(KernelRun&, UpdateState&)>;

// Each optimizer by name.
std::vector<std::pair<std::string, Update>> Updates() {
  return {
      {"Adam", [](KernelRun& run, UpdateState& s) { return Adam(run.stream(), s.Adam(run)); }},
      {"Sgd", [](KernelRun& run, UpdateState& s) { return Sgd(run.stream(), s.Sgd(run)); }},
      {"Lion", [](KernelRun& run, UpdateState& s) { return Lion(run.stream(), s.Lion(run)); }},
  };
}

// fp32 values around every bf16 and at ties, infinities among them, no NaN.
std::vector<float> HardMasters() {
  std::vector<float> values;
  for (uint32_t upper = 0; upper < 0x10000; upper += 3) {
    for (uint32_t lower : {0x0u, 0x1000u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const float x = FloatOf(upper << 16 | lower);
      if (x == x) values.push_back(x);
    }
  }
  values.resize(values.size() / 64 * 64);
  return values;
}

TEST_CASE("Masters: an update that moves nothing leaves the master and its rounded weight",
          "[kernels]") {
  const Masters masters =
      GENERATE(Masters::kOwn, Masters::kBF16, Masters::kBF16Away, Masters::kF16, Masters::kSplit);
  const std::vector<float> hard = HardMasters();
  const int64_t n = static_cast<int64_t>(hard.size());
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    UpdateState state({DType::kF32, masters}, n, 1);
    state.rows.assign(3, GroupScalars());
    for (int64_t i = 0; i < n; ++i) {
      state.SetMaster(i, hard[i]);
      if (masters == Masters::kBF16 || masters == Masters::kF16 || masters == Masters::kBF16Away) {
        state.weight.SetBits(i, 0);
      }
    }
    SgdArguments a = state.Sgd(run);
    a.moment1 = nullptr;
    REQUIRE_OK(Sgd(run.stream(), a));
    run.Finish();
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; ++i) {
      // 0 x infinity is no number.
      if (std::isinf(hard[i])) continue;
      if (BitsOf(state.Master(i)) != BitsOf(hard[i])) ++wrong;
      const uint32_t expected = masters == Masters::kBF16  ? ToBFloat16(hard[i]).bits
                                : masters == Masters::kF16 ? ToFloat16(hard[i]).bits
                                                           : ToBFloat16Away(hard[i]).bits;
      if (masters != Masters::kOwn && state.weight.Bits(i) != expected) ++wrong;
    }
    INFO(variant << " " << state.types.ToString());
    CHECK(wrong == 0);
  });
}

TEST_CASE("Masters: split ones stay those of fp32 with weights rounded away, over 300 steps",
          "[kernels]") {
  constexpr int64_t kN = 1024;
  const DType gradient = GENERATE(DType::kF32, DType::kBF16);
  for (const auto& [name, update] : Updates()) {
    KernelRun run;
    UpdateState split({gradient, Masters::kSplit}, kN, 0);
    UpdateState whole({gradient, Masters::kBF16Away}, kN, 0);
    for (int step = 0; step < 300; ++step) {
      const std::vector<float> gradients = RandomFloats(kN, 500 + step);
      for (int64_t i = 0; i < kN; ++i) {
        split.gradient.Set(i, 1000 * gradients[i]);
        whole.gradient.Set(i, 1000 * gradients[i]);
      }
      REQUIRE_OK(update(run, split));
      REQUIRE_OK(update(run, whole));
      run.Finish();
    }
    int64_t wrong = 0;
    int64_t moved = 0;
    const std::vector<float> start = RandomFloats(kN, 32);
    for (int64_t i = 0; i < kN; ++i) {
      if (BitsOf(split.Master(i)) != whole.master.Bits(i)) ++wrong;
      if (whole.master.Get(i) != start[i]) ++moved;
    }
    INFO(name << ", gradient " << Name(gradient));
    CHECK(wrong == 0);
    CHECK(moved > kN / 2);
    CHECK(split.weight.bytes() == whole.weight.bytes());
    CHECK(split.moment1.bytes() == whole.moment1.bytes());
    CHECK(split.moment2.bytes() == whole.moment2.bytes());
  }
}

TEST_CASE("Masters: without one the mean of 10000 weights follows fp32 where nearest would stand",
          "[kernels]") {
  constexpr int64_t kN = 10048;
  constexpr int64_t kCounted = 10000;
  constexpr double kRate = 6e-4;
  UpdateState state({DType::kF32, Masters::kNone}, kN, 0);
  UpdateState wide({DType::kF32, Masters::kOwn}, 64, 0);
  for (UpdateState* s : {&state, &wide}) {
    for (int64_t i = 0; i < s->size(); ++i) {
      s->SetMaster(i, 1);
      s->gradient.Set(i, 0.5f);
      s->moment1.Set(i, 0);
      s->moment2.Set(i, 0);
    }
  }
  KernelRun run;
  for (int t = 1; t <= 100; ++t) {
    GroupScalars row;
    row.step_size = static_cast<float>(kRate / (1 - std::pow(0.9, t)));
    for (UpdateState* s : {&state, &wide}) {
      s->scalars.divisor = 1;
      s->scalars.clip_coefficient = 1;
      s->scalars.sqrt_bias_correction2 = static_cast<float>(std::sqrt(1 - std::pow(0.999, t)));
      s->scalars.random_key = static_cast<uint32_t>(t);
      s->rows.assign(3, row);
      REQUIRE_OK(Adam(run.stream(), s->Adam(run)));
    }
    run.Finish();
  }
  double sum = 0;
  float least = 1;
  float most = 0;
  for (int64_t i = 0; i < kCounted; ++i) {
    sum += state.Master(i);
    least = std::min(least, state.Master(i));
    most = std::max(most, state.Master(i));
  }
  CHECK(std::abs(wide.Master(0) - 0.94) < 1e-5);
  CHECK(std::abs(sum / kCounted - 0.94) < 0.01);
  // 100 roundings of at most 1/256: the mean of 10,000 sums of them is known far better than that.
  CHECK(std::abs(sum / kCounted - 0.94) < 5 * 0.5 / 256 * 10 / 100);
  CHECK(least < most);
  CHECK(ToFloat(ToBFloat16(1 - 6e-4f)) == 1.0f);
}

TEST_CASE("Masters: random bits do not depend on how a parameter is cut", "[kernels]") {
  constexpr int64_t kN = 2112;
  // The upper half of the index changes in the middle.
  constexpr int64_t kFirst = (int64_t{1} << 32) - 1024;
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    for (const auto& [name, update] : Updates()) {
      UpdateState whole({DType::kBF16, Masters::kNone}, kN, 0);
      whole.first_element = kFirst;
      UpdateState expected = whole;
      if (name == "Adam") expected.ScalarAdam();
      if (name == "Sgd") expected.ScalarSgd();
      if (name == "Lion") expected.ScalarLion();
      REQUIRE_OK(update(run, whole));
      run.Finish();
      INFO(variant << " " << name);
      CHECK(whole.Difference(expected) == "");
    }
    UpdateState cut({DType::kBF16, Masters::kNone}, kN, 0);
    cut.first_element = kFirst;
    UpdateState expected = cut;
    expected.ScalarAdam();
    const AdamArguments all = cut.Adam(run);
    for (int64_t begin = 0, end = 64; begin < kN; begin = end, end = std::min(kN, 3 * end)) {
      AdamArguments a = all;
      a.gradient = static_cast<const uint16_t*>(a.gradient) + begin;
      a.weights.weight = static_cast<uint16_t*>(a.weights.weight) + begin;
      a.weights.first_element += begin;
      a.moment1 += begin;
      a.moment2 += begin;
      a.groups += begin / 64;
      a.n = end - begin;
      REQUIRE_OK(Adam(run.stream(), a));
    }
    run.Finish();
    INFO(variant);
    CHECK(cut.Difference(expected) == "");
  });
}

TEST_CASE("Masters: another step and another parameter round differently", "[kernels]") {
  KernelRun run;
  UpdateState first({DType::kF32, Masters::kNone}, 2112, 0);
  UpdateState step = first;
  UpdateState parameter = first;
  step.scalars.random_key += 1;
  parameter.random_key += 1;
  for (UpdateState* s : {&first, &step, &parameter}) REQUIRE_OK(Adam(run.stream(), s->Adam(run)));
  run.Finish();
  for (const UpdateState* s : {&step, &parameter}) {
    int64_t different = 0;
    for (int64_t i = 0; i < s->size(); ++i) {
      if (s->weight.Bits(i) != first.weight.Bits(i)) ++different;
    }
    CHECK(different > 100);
    CHECK(s->moment1.bytes() == first.moment1.bytes());
  }
}

}  // namespace
}  // namespace zero
