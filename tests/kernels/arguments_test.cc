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
constexpr DType kF16 = DType::kF16;

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

template <class Arguments>
using Changes = std::vector<std::pair<const char*, std::function<void(Arguments&)>>>;

// The changes to an update of bf16 weights with fp32 masters that all refuse in the same way.
template <class Arguments>
Changes<Arguments> WrongUpdates() {
  return {
      {"n", [](Arguments& a) { a.n = -64; }},
      {"n", [](Arguments& a) { a.n = 65; }},
      {"gradient", [](Arguments& a) { a.gradient = nullptr; }},
      {"gradient_type is fp16 for bf16", [](Arguments& a) { a.gradient_type = kF16; }},
      {"gradient_type is bf16 for fp32",
       [](Arguments& a) {
         a.gradient_type = kBF16;
         a.weights.weight = nullptr;
       }},
      {"master",
       [](Arguments& a) {
         a.gradient_type = kF32;
         a.weights.weight = nullptr;
         a.weights.master = nullptr;
       }},
      {"weight is null",
       [](Arguments& a) {
         a.weights.weight = nullptr;
         a.weights.remainder = reinterpret_cast<uint16_t*>(a.weights.master);
       }},
      {"weight_type", [](Arguments& a) { a.weights.weight_type = kF32; }},
      {"weight_type",
       [](Arguments& a) {
         a.weights.weight_type = kF16;
         a.weights.master = nullptr;
       }},
      {"remainder",
       [](Arguments& a) { a.weights.remainder = reinterpret_cast<uint16_t*>(a.weights.master); }},
      {"ties_away",
       [](Arguments& a) {
         a.weights.weight_type = kF16;
         a.weights.ties_away = true;
       }},
      {"first_element",
       [](Arguments& a) {
         a.weights.master = nullptr;
         a.weights.first_element = 32;
       }},
      {"first_element",
       [](Arguments& a) {
         a.weights.master = nullptr;
         a.weights.first_element = -64;
       }},
      {"groups", [](Arguments& a) { a.groups = nullptr; }},
      {"scalars", [](Arguments& a) { a.scalars = nullptr; }},
      {"rows", [](Arguments& a) { a.rows = nullptr; }},
  };
}

TEST_CASE("Adam: each wrong argument is named", "[kernels][errors]") {
  KernelRun run;
  UpdateState state({kF32, Masters::kBF16}, 128, 0);
  auto changes = WrongUpdates<AdamArguments>();
  changes.push_back({"moment1", [](AdamArguments& a) { a.moment1 = nullptr; }});
  changes.push_back({"moment2", [](AdamArguments& a) { a.moment2 = nullptr; }});
  for (const auto& [name, change] : changes) {
    AdamArguments a = state.Adam(run);
    change(a);
    CheckRefused(run, Adam(run.stream(), a), "Adam", name);
  }
}

TEST_CASE("Sgd: each wrong argument is named", "[kernels][errors]") {
  KernelRun run;
  UpdateState state({kF32, Masters::kBF16}, 128, 0);
  auto changes = WrongUpdates<SgdArguments>();
  changes.push_back({"moment1", [](SgdArguments& a) {
                       a.nesterov = true;
                       a.moment1 = nullptr;
                     }});
  for (const auto& [name, change] : changes) {
    SgdArguments a = state.Sgd(run);
    change(a);
    CheckRefused(run, Sgd(run.stream(), a), "Sgd", name);
  }
}

TEST_CASE("Lion: each wrong argument is named", "[kernels][errors]") {
  KernelRun run;
  UpdateState state({kF32, Masters::kBF16}, 128, 0);
  auto changes = WrongUpdates<LionArguments>();
  changes.push_back({"moment1", [](LionArguments& a) { a.moment1 = nullptr; }});
  for (const auto& [name, change] : changes) {
    LionArguments a = state.Lion(run);
    change(a);
    CheckRefused(run, Lion(run.stream(), a), "Lion", name);
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
  CHECK_OK(Adam(s, AdamArguments()));
  CHECK_OK(Sgd(s, SgdArguments()));
  CHECK_OK(Lion(s, LionArguments()));
  run.Finish();
  CHECK(run.kernels() == 0);
}

}  // namespace
}  // namespace zero
