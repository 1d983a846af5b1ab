#include <functional>

#include "tests/kernels/update_test_util.h"

namespace zero {
namespace {

// The call is refused, names kernel and argument, and nothing runs.
void CheckRefused(KernelRun& run, const absl::Status& status, const std::string& kernel,
                  const std::string& argument) {
  const std::string message(status.message());
  INFO(kernel << ", " << argument << ": " << message);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(message, ContainsSubstring(kernel + ": " + argument));
  run.Finish();
  CHECK(run.kernels() == 0);
}

constexpr DType kF32 = DType::kF32;
constexpr DType kBF16 = DType::kBF16;

TEST_CASE("Cast, Add, Scale, Fill, Norm: each wrong argument is named", "[kernels][errors]") {
  KernelRun run;
  const Stream& s = run.stream();
  std::vector<float> a(64), b(64);
  float* x = a.data();
  float* y = b.data();
  NormPartial scratch, out;
  CheckRefused(run, Cast(s, x, kF32, y, kBF16, -1), "Cast", "n");
  CheckRefused(run, Cast(s, nullptr, kF32, y, kBF16, 64), "Cast", "in");
  CheckRefused(run, Cast(s, x, kF32, nullptr, kBF16, 64), "Cast", "out");
  CheckRefused(run, Cast(s, x, kF32, x, kBF16, 64), "Cast", "out");
  CheckRefused(run, Cast(s, x, kF32, x + 1, kF32, 63), "Cast", "out");

  CheckRefused(run, Add(s, x, kF32, y, kF32, -64), "Add", "n");
  CheckRefused(run, Add(s, nullptr, kF32, y, kF32, 64), "Add", "in");
  CheckRefused(run, Add(s, x, kF32, nullptr, kF32, 64), "Add", "sum");
  CheckRefused(run, Add(s, x + 1, kF32, x, kF32, 63), "Add", "sum");

  CheckRefused(run, Scale(s, x, kF32, 2, -1), "Scale", "n");
  CheckRefused(run, Scale(s, nullptr, kF32, 2, 64), "Scale", "x");

  CheckRefused(run, Fill(s, x, kF32, 2, -1), "Fill", "n");
  CheckRefused(run, Fill(s, nullptr, kF32, 2, 64), "Fill", "x");

  CheckRefused(run, Norm(s, x, kF32, -1, &scratch, &out), "Norm", "n");
  CheckRefused(run, Norm(s, nullptr, kF32, 64, &scratch, &out), "Norm", "in");
  CheckRefused(run, Norm(s, x, kF32, 64, nullptr, &out), "Norm", "scratch");
  CheckRefused(run, Norm(s, x, kF32, 64, &scratch, nullptr), "Norm", "out");
}

TEST_CASE("OrderedSum: each wrong argument is named", "[kernels][errors]") {
  KernelRun run;
  std::vector<float> parts(128), sum(64);
  OrderedSumArguments good;
  good.parts = parts.data();
  good.part_count = 2;
  good.part_stride = 64;
  good.out = sum.data();
  good.n = 64;
  using Change = std::function<void(OrderedSumArguments&)>;
  const std::pair<const char*, Change> changes[] = {
      {"n", [](auto& a) { a.n = -1; }},
      {"part_count", [](auto& a) { a.part_count = 0; }},
      {"part_stride", [](auto& a) { a.part_stride = -64; }},
      {"parts", [](auto& a) { a.parts = nullptr; }},
      {"out", [](auto& a) { a.out = nullptr; }},
      {"out", [&](auto& a) { a.out = parts.data() + 32; }},
  };
  for (const auto& [name, change] : changes) {
    OrderedSumArguments a = good;
    change(a);
    CheckRefused(run, OrderedSum(run.stream(), a), "OrderedSum", name);
  }
}

// The changes that both updates refuse in the same way.
template <class Arguments>
std::vector<std::pair<const char*, std::function<void(Arguments&)>>> WrongUpdates() {
  return {
      {"n", [](Arguments& a) { a.n = -64; }},
      {"n", [](Arguments& a) { a.n = 65; }},
      {"gradient", [](Arguments& a) { a.gradient = nullptr; }},
      {"master", [](Arguments& a) { a.master = nullptr; }},
      {"moment1", [](Arguments& a) { a.moment1 = nullptr; }},
      {"groups", [](Arguments& a) { a.groups = nullptr; }},
      {"scalars", [](Arguments& a) { a.scalars = nullptr; }},
      {"rows", [](Arguments& a) { a.rows = nullptr; }},
  };
}

TEST_CASE("AdamW: each wrong argument is named", "[kernels][errors]") {
  KernelRun run;
  UpdateState state(kF32, true, kBF16, 128, 0);
  auto changes = WrongUpdates<AdamWArguments>();
  changes.push_back({"moment2", [](AdamWArguments& a) { a.moment2 = nullptr; }});
  for (const auto& [name, change] : changes) {
    AdamWArguments a = state.AdamW(run);
    change(a);
    CheckRefused(run, AdamW(run.stream(), a), "AdamW", name);
  }
}

TEST_CASE("Sgd: each wrong argument is named", "[kernels][errors]") {
  KernelRun run;
  UpdateState state(kF32, true, kBF16, 128, 0);
  for (const auto& [name, change] : WrongUpdates<SgdArguments>()) {
    SgdArguments a = state.Sgd(run, 0.9f);
    change(a);
    CheckRefused(run, Sgd(run.stream(), a), "Sgd", name);
  }
}

TEST_CASE("Kernels: n == 0 is fine without any pointer and enqueues nothing", "[kernels]") {
  KernelRun run;
  const Stream& s = run.stream();
  CHECK_OK(Cast(s, nullptr, kF32, nullptr, kBF16, 0));
  CHECK_OK(Add(s, nullptr, kF32, nullptr, kBF16, 0));
  CHECK_OK(Scale(s, nullptr, kF32, 2, 0));
  CHECK_OK(Fill(s, nullptr, kF32, 2, 0));
  CHECK_OK(Norm(s, nullptr, kF32, 0, nullptr, nullptr));
  OrderedSumArguments sum;
  sum.part_count = 1;
  CHECK_OK(OrderedSum(s, sum));
  CHECK_OK(AdamW(s, AdamWArguments()));
  CHECK_OK(Sgd(s, SgdArguments()));
  run.Finish();
  CHECK(run.kernels() == 0);
}

}  // namespace
}  // namespace zero
