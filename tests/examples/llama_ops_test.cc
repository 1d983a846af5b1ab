#include <set>

#include "examples/llama/ops.h"
#include "examples/llama/rope.h"
#include "tests/examples/reference_model.h"
#include "tests/examples/tensor.h"

namespace zero::llama {
namespace {

DType AnyDType() { return GENERATE(DType::kF32, DType::kBF16, DType::kF16); }

TEST_CASE("RmsNorm: forward and backward are those of the formula in double", "[examples][llama]") {
  const DType dtype = AnyDType();
  const size_t rows = GENERATE(1, 3, 300), width = GENERATE(5, 24, 65);
  const bool with_residual = GENERATE(false, true);
  Runner runner;
  const Doubles x = RandomValues(rows * width, 1), w = RandomValues(width, 2),
                dy = RandomValues(rows * width, 3), residual = RandomValues(rows * width, 4);
  const RmsNormArguments arguments = {int64_t(rows), int64_t(width), dtype, 1e-5f};
  const Tensor tx(x, dtype), tw(w, dtype), tdy(dy, DType::kF32);
  Tensor y(rows * width, dtype), r(rows, DType::kF32);
  runner.Run(
      RmsNormForward(runner.stream(), arguments, tx.data(), tw.data(), y.data(), r.floats()));
  CheckNear("y", y.values(), reference::Norm(x, w, 1e-5), dtype);

  Tensor dx(residual, dtype), dw(RandomValues(width, 5), dtype);
  const Doubles before = dw.values();
  runner.Run(RmsNormBackward(runner.stream(), arguments,
                             {tdy.floats(), tx.data(), tw.data(), r.floats(),
                              with_residual ? dx.data() : nullptr, dx.data(), dw.data(), true}));
  Doubles want_dx = with_residual ? residual : Doubles(rows * width), want_dw = before;
  reference::NormBackward(x, w, dy, 1e-5, want_dx, want_dw);
  CheckNear("dx", dx.values(), want_dx, dtype, 4e-6);
  CheckNear("dw", dw.values(), want_dw, dtype, 4e-6);
}

TEST_CASE("RmsNorm: backward is the finite difference of the forward in double",
          "[examples][llama]") {
  const size_t rows = 3, width = 24;
  Runner runner;
  const Doubles x = RandomValues(rows * width, 1), w = RandomValues(width, 2),
                dy = RandomValues(rows * width, 3);
  const RmsNormArguments arguments = {rows, width, DType::kF32, 1e-5f};
  const Tensor tx(x, DType::kF32), tw(w, DType::kF32), tdy(dy, DType::kF32);
  Tensor y(rows * width, DType::kF32), r(rows, DType::kF32), dx(y), dw(width, DType::kF32);
  runner.Run(
      RmsNormForward(runner.stream(), arguments, tx.data(), tw.data(), y.data(), r.floats()));
  runner.Run(RmsNormBackward(
      runner.stream(), arguments,
      {tdy.floats(), tx.data(), tw.data(), r.floats(), nullptr, dx.data(), dw.data(), false}));
  CheckNear(
      "dx", dx.values(),
      NumericGradient([&](const Doubles& at) { return Dot(dy, reference::Norm(at, w, 1e-5)); }, x),
      DType::kF32);
  CheckNear(
      "dw", dw.values(),
      NumericGradient([&](const Doubles& at) { return Dot(dy, reference::Norm(x, at, 1e-5)); }, w),
      DType::kF32);
}

TEST_CASE("SwiGlu: forward and backward are those of the formula in double", "[examples][llama]") {
  const DType dtype = AnyDType();
  const size_t n = GENERATE(1, 15, 1000);
  Runner runner;
  const Doubles gate = RandomValues(n, 1, 8), up = RandomValues(n, 2), d = RandomValues(n, 3);
  const Tensor tg(gate, dtype), tu(up, dtype);
  Tensor out(n, dtype), d_gate(n, dtype), d_up(d, dtype);
  runner.Run(SwiGluForward(runner.stream(), dtype, n, tg.data(), tu.data(), out.data()));
  runner.Run(SwiGluBackward(runner.stream(), dtype, n, tg.data(), tu.data(), d_up.data(),
                            d_gate.data(), d_up.data()));
  const auto forward = [&](const Doubles& g, const Doubles& u) {
    Doubles y(n);
    for (size_t i = 0; i < n; ++i) y[i] = reference::Silu(g[i]) * u[i];
    return y;
  };
  CheckNear("out", out.values(), forward(gate, up), dtype);
  const auto numeric_gate =
      NumericGradient([&](auto& at) { return Dot(d, forward(at, up)); }, gate);
  const auto numeric_up = NumericGradient([&](auto& at) { return Dot(d, forward(gate, at)); }, up);
  CheckNear("d_gate", d_gate.values(), numeric_gate, dtype);
  CheckNear("d_up", d_up.values(), numeric_up, dtype);
}

TEST_CASE("SwiGlu: gates far from zero give neither NaN nor infinity", "[examples][llama]") {
  Runner runner;
  const Tensor gate(Doubles{-1e30, -200, -90, 90, 200, 1e30}, DType::kF32),
      up(Doubles(6, 1.0), DType::kF32);
  Tensor out(6, DType::kF32), d_gate(6, DType::kF32), d_up(Doubles(6, 1.0), DType::kF32);
  runner.Run(SwiGluForward(runner.stream(), DType::kF32, 6, gate.data(), up.data(), out.data()));
  runner.Run(SwiGluBackward(runner.stream(), DType::kF32, 6, gate.data(), up.data(), d_up.data(),
                            d_gate.data(), d_up.data()));
  CHECK(Difference(out.values(), {0, 0, 0, 90, 200, 1e30}) < 1e-6);
  CHECK(Difference(d_gate.values(), {0, 0, 0, 1, 1, 1}) < 1e-6);
}

TEST_CASE("Rotary: turns pairs by position times frequency, and backward turns back",
          "[examples][llama]") {
  const DType dtype = AnyDType();
  LlamaConfig config;
  config.head_dim = GENERATE(2, 6, 64);
  const int64_t heads = 3, sequence = 7, tokens = 14;
  const RopeTable table = MakeRopeTable(config, sequence);
  Runner runner;
  const Doubles x = RandomValues(tokens * heads * config.head_dim, 1);
  Tensor y(x, dtype);
  const DeviceArray<float> cos(table.cos), sin(table.sin);
  RotaryArguments arguments = {tokens, sequence,   heads,     config.head_dim,
                               dtype,  cos.data(), sin.data()};
  runner.Run(Rotary(runner.stream(), arguments, y.data()));
  CheckNear("forward", y.values(), reference::Rotate(config, x, heads, sequence), dtype);
  arguments.backward = true;
  y = Tensor(x, dtype);
  runner.Run(Rotary(runner.stream(), arguments, y.data()));
  CheckNear(
      "backward", y.values(),
      NumericGradient(
          [&](const Doubles& at) { return Dot(x, reference::Rotate(config, at, heads, sequence)); },
          Doubles(x.size())),
      dtype);
}

TEST_CASE("Rotary: an odd width of heads is refused", "[examples][llama][errors]") {
  Runner runner;
  const absl::Status status = Rotary(runner.stream(), {4, 4, 1, 5, DType::kF32}, nullptr);
  CHECK_THAT(std::string(status.message()), ContainsSubstring("head_dim 5 is odd"));
}

TEST_CASE("Embedding: rows are copied, and rows of one id are summed before they are rounded",
          "[examples][llama]") {
  const DType dtype = AnyDType();
  const bool accumulate = GENERATE(false, true);
  const size_t vocab = 11, width = 5;
  const std::vector<int32_t> ids = {3, 0, 3, 10, 3, 3, 0};
  Runner runner;
  const DeviceArray<int32_t> on_device(ids);
  const EmbeddingArguments arguments = {int64_t(ids.size()), vocab, width, dtype, on_device.data()};
  const Doubles table = RandomValues(vocab * width, 1);
  // Sums that would be lost if each addition were rounded to bf16.
  Doubles d = RandomValues(ids.size() * width, 2, 1.0 / 512);
  for (size_t i = 0; i < width; ++i) d[i] = 1;
  const Tensor t(table, dtype), d_out(d, dtype);
  Tensor out(ids.size() * width, dtype), d_table(table, dtype);
  runner.Run(EmbeddingForward(runner.stream(), arguments, t.data(), out.data()));
  runner.Run(
      EmbeddingBackward(runner.stream(), arguments, d_out.data(), d_table.data(), accumulate));
  Doubles want(ids.size() * width), want_d = accumulate ? table : Doubles(table.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const size_t at = ids[i / width] * width + i % width;
    want[i] = table[at];
    want_d[at] += d[i];
  }
  CHECK(out.values() == want);
  CHECK(d_table == Tensor(want_d, dtype));
}

TEST_CASE("AddResidual: the sum may take the place of an operand", "[examples][llama]") {
  const DType dtype = AnyDType();
  Runner runner;
  Tensor a(Doubles{1, 2, -3}, dtype);
  const Tensor b(Doubles{0.5, 0.25, 3}, dtype);
  runner.Run(AddResidual(runner.stream(), dtype, 3, a.data(), b.data(), a.data()));
  CHECK(a.values() == Doubles{1.5, 2.25, 0});
}

TEST_CASE("CrossEntropy: loss and gradient are those of the formula, and ignored rows are zero",
          "[examples][llama]") {
  const DType dtype = AnyDType();
  const size_t vocab = GENERATE(1, 11, 256, 1000);
  const std::vector<int32_t> targets = {0, -1, int32_t(vocab) - 1, -100, int32_t(vocab) / 2};
  const int64_t rows = targets.size();
  Runner runner;
  const Doubles logits = RandomValues(rows * vocab, 1, 10);
  Tensor x(logits, DType::kF32), losses(rows, DType::kF32), lse(rows, DType::kF32);
  const DeviceArray<int32_t> on_device(targets);
  const CrossEntropyArguments arguments = {rows, int64_t(vocab), x.floats(), on_device.data()};
  runner.Run(CrossEntropyForward(runner.stream(), arguments, losses.floats(), lse.floats()));
  const DeviceLoss result;
  runner.Run(SumLosses(runner.stream(), rows, losses.floats(), on_device.data(), result.data()));
  const LossSum sum = result.get();
  CHECK(sum.loss ==
        Approx(reference::CrossEntropy(logits, targets, vocab)).epsilon(2e-6).margin(1e-6));
  CHECK(sum.tokens == 3);

  const DeviceArray<float> scale({1024});
  Tensor separate(rows * vocab, dtype);
  // In place where the types allow it.
  void* out = dtype == DType::kF32 ? x.data() : separate.data();
  runner.Run(CrossEntropyBackward(runner.stream(), arguments, lse.floats(), scale.data(), 0.5f,
                                  dtype, out));
  Doubles want = NumericGradient(
      [&](const Doubles& at) { return reference::CrossEntropy(at, targets, vocab); }, logits);
  for (double& value : want) value *= 512;
  const Doubles got = dtype == DType::kF32 ? x.values() : separate.values();
  CheckNear("d_logits", got, vocab == 1 ? Doubles(rows) : want, dtype);
  CHECK(Doubles(got.begin() + vocab, got.begin() + 2 * vocab) == Doubles(vocab));
}

TEST_CASE("CrossEntropy: logits far from zero neither overflow nor lose the loss",
          "[examples][llama]") {
  Runner runner;
  const Tensor x(Doubles{3e4, 3e4 - 1, -3e4, -1e4, -1e4, -2e4}, DType::kF32);
  const DeviceArray<int32_t> targets({1, 0});
  Tensor losses(2, DType::kF32), lse(2, DType::kF32);
  runner.Run(CrossEntropyForward(runner.stream(), {2, 3, x.floats(), targets.data()},
                                 losses.floats(), lse.floats()));
  CHECK(losses.values()[0] == Approx(1.3133).epsilon(2e-3));
  CHECK(losses.values()[1] == Approx(0.6931).epsilon(2e-3));
}

TEST_CASE("CrossEntropy: a NaN or an infinite logit makes the loss not finite",
          "[examples][llama]") {
  const double bad = GENERATE(NAN, INFINITY);
  const size_t place = GENERATE(0, 17, 39);
  Runner runner;
  Doubles logits(40);
  logits[place] = bad;
  const Tensor x(logits, DType::kF32);
  const DeviceArray<int32_t> targets({5});
  Tensor losses(1, DType::kF32), lse(1, DType::kF32);
  runner.Run(CrossEntropyForward(runner.stream(), {1, 40, x.floats(), targets.data()},
                                 losses.floats(), lse.floats()));
  CHECK(!std::isfinite(losses.values()[0]));
}

TEST_CASE(
    "CrossEntropy: a scale that is too large for fp16 shows in the gradient, never in "
    "ignored rows",
    "[examples][llama]") {
  const DType dtype = DType::kF16;
  const int64_t vocab = 40;
  Runner runner;
  Doubles logits = RandomValues(2 * vocab, 1, 10);
  logits[vocab] = 3e38;  // of the ignored row
  const Tensor x(logits, DType::kF32);
  const DeviceArray<int32_t> targets({5, -1});
  Tensor losses(2, DType::kF32), lse(2, DType::kF32), d(2 * vocab, dtype);
  const CrossEntropyArguments arguments = {2, vocab, x.floats(), targets.data()};
  runner.Run(CrossEntropyForward(runner.stream(), arguments, losses.floats(), lse.floats()));
  const DeviceArray<float> scale({0x1p24f});
  for (const float factor : {1.0f, 0x1p-10f}) {
    runner.Run(CrossEntropyBackward(runner.stream(), arguments, lse.floats(), scale.data(), factor,
                                    dtype, d.data()));
    const Doubles got = d.values();
    CHECK(std::isinf(got[5]) == (factor == 1));
    CHECK(Doubles(got.begin() + vocab, got.end()) == Doubles(vocab));
  }
}

}  // namespace
}  // namespace zero::llama
