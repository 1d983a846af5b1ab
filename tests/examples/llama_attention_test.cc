#include "examples/llama/ops.h"
#include "tests/examples/attention_run.h"
#include "tests/examples/reference_model.h"

namespace zero::llama {
namespace {

TEST_CASE("Attention: forward and backward are those of the whole score matrix in double",
          "[examples][llama]") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const reference::AttentionShape s = GENERATE(
      reference::AttentionShape{1, 1, 1, 1, 2}, reference::AttentionShape{2, 7, 4, 2, 6},
      reference::AttentionShape{1, 63, 2, 1, 8}, reference::AttentionShape{1, 64, 1, 1, 16},
      reference::AttentionShape{2, 65, 2, 2, 32}, reference::AttentionShape{1, 130, 9, 3, 20},
      reference::AttentionShape{1, 200, 2, 1, 128}, reference::AttentionShape{1, 66, 1, 1, 48});
  CAPTURE(s.sequence, s.heads, s.kv_heads, s.width);
  AttentionRun run(s, dtype);
  run.Run();
  Doubles dq(run.q_size), dk(run.kv_size), dv(run.kv_size);
  reference::AttentionBackward(s, run.qs, run.ks, run.vs, run.ds, dq, dk, dv);
  CheckNear("out", run.out.values(), reference::Attention(s, run.qs, run.ks, run.vs), dtype);
  // D is made from the rounded output.
  CheckNear("dq", run.dq.values(), dq, dtype, 4e-6, 2e-2);
  CheckNear("dk", run.dk.values(), dk, dtype, 4e-6, 2e-2);
  CheckNear("dv", run.dv.values(), dv, dtype, 4e-6, 2e-2);
}

TEST_CASE("Attention: backward is the finite difference of the forward in double",
          "[examples][llama]") {
  const reference::AttentionShape s = {1, 9, 4, 2, 6};
  AttentionRun run(s, DType::kF32);
  run.Run();
  const auto loss = [&](const Doubles& q, const Doubles& k, const Doubles& v) {
    return Dot(run.ds, reference::Attention(s, q, k, v));
  };
  const auto near = [](const char* what, const Tensor& got, const Doubles& want) {
    CheckNear(what, got.values(), want, DType::kF32, 4e-6);
  };
  near("dq", run.dq, NumericGradient([&](auto& x) { return loss(x, run.ks, run.vs); }, run.qs));
  near("dk", run.dk, NumericGradient([&](auto& x) { return loss(run.qs, x, run.vs); }, run.ks));
  near("dv", run.dv, NumericGradient([&](auto& x) { return loss(run.qs, run.ks, x); }, run.vs));
}

TEST_CASE("Attention: no token sees a later one", "[examples][llama]") {
  const reference::AttentionShape s = {1, 100, 2, 1, 8};
  const int64_t changed = GENERATE(1, 63, 64, 99);
  AttentionRun before(s, DType::kF32), after(s, DType::kF32);
  for (int64_t i = 0; i < s.width; ++i) {
    after.k.Set(changed * s.width + i, 50);
    after.v.Set(changed * s.width + i, 50);
  }
  before.Run();
  after.Run();
  const size_t row = s.heads * s.width;
  const Doubles a = before.out.values(), b = after.out.values();
  CHECK(std::equal(a.begin(), a.begin() + changed * row, b.begin()));
  CHECK(!std::equal(a.begin(), a.begin() + (changed + 1) * row, b.begin()));
}

TEST_CASE("Attention: scores of thousands do not overflow", "[examples][llama]") {
  const reference::AttentionShape s = {1, 70, 1, 1, 4};
  AttentionRun run(s, DType::kF32);
  for (size_t i = 0; i < run.q_size; ++i) {
    run.qs[i] *= 100;
    run.q.Set(i, run.qs[i]);
  }
  run.Run();
  CheckNear("out", run.out.values(), reference::Attention(s, run.qs, run.ks, run.vs), DType::kF32,
            1e-4);
  CHECK(std::isfinite(Difference(run.dk.values(), Doubles(run.kv_size, 1.0))));
}

TEST_CASE("Attention: scores beyond the range of fp16 give no infinity in fp16",
          "[examples][llama]") {
  const reference::AttentionShape s = {1, 70, 2, 1, 64};
  AttentionRun run(s, DType::kF16);
  // Whole numbers: every score is exact, around 130 thousand.
  for (size_t i = 0; i < run.q_size; ++i) run.q.Set(i, run.qs[i] = std::abs(run.qs[i]) * 256);
  for (size_t i = 0; i < run.kv_size; ++i) run.k.Set(i, run.ks[i] = std::abs(run.ks[i]) * 64);
  run.Run();
  CheckNear("out", run.out.values(), reference::Attention(s, run.qs, run.ks, run.vs), DType::kF16);
  for (const Tensor* gradient : {&run.dq, &run.dk, &run.dv}) {
    for (const double value : gradient->values()) CHECK(std::isfinite(value));
  }
}

TEST_CASE("Attention: a NaN in a query reaches the output", "[examples][llama]") {
  AttentionRun run({1, 70, 1, 1, 4}, DType::kF32);
  run.q.Set(66 * 4 + 1, NAN);
  run.Run();
  CHECK(std::isnan(run.out.values()[66 * 4]));
  CHECK(!std::isnan(run.out.values()[65 * 4]));
}

TEST_CASE("Attention: heads that cannot be shared evenly are refused",
          "[examples][llama][errors]") {
  Runner runner;
  const absl::Status status =
      AttentionForward(runner.stream(), {1, 4, 7, 2, 8, DType::kF32}, nullptr, nullptr);
  CHECK_THAT(std::string(status.message()), ContainsSubstring("7 query heads cannot share 2"));
}

}  // namespace
}  // namespace zero::llama
