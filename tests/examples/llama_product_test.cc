#include "examples/llama/ops.h"
#include "tests/examples/tensor.h"

namespace zero::llama {
namespace {

struct Case {
  int64_t m, n, k;
};

// C = A B + addend in double.
Doubles Expected(const MatMulArguments& p, const Doubles& a, const Doubles& b,
                 const Doubles& addend) {
  Doubles c = addend;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      for (int64_t s = 0; s < p.k; ++s) {
        c[i * p.n + j] += a[p.transpose_a ? s * p.m + i : i * p.k + s] *
                          b[p.transpose_b ? j * p.k + s : s * p.n + j];
      }
    }
  }
  return c;
}

TEST_CASE("MatMul: every transpose, type and addend gives the product in double, in each way",
          "[examples][llama]") {
  const std::string variant = GENERATE(from_range(ProductVariants()));
  const Case size = GENERATE(Case{1, 1, 1}, Case{7, 37, 24}, Case{64, 33, 130}, Case{150, 140, 270},
                             Case{513, 2, 520}, Case{2, 520, 513}, Case{3, 5, 0});
  const WithProducts with(variant);
  Runner runner;
  for (const auto& [in, out] :
       {std::pair(DType::kF32, DType::kF32), std::pair(DType::kBF16, DType::kF32),
        std::pair(DType::kBF16, DType::kBF16), std::pair(DType::kF16, DType::kF32),
        std::pair(DType::kF16, DType::kF16)}) {
    for (int choice = 0; choice < 12; ++choice) {
      const Doubles a = RandomValues(size.m * size.k, 1), b = RandomValues(size.k * size.n, 2),
                    addend = RandomValues(size.m * size.n, 3);
      const Tensor ta(a, in), tb(b, in), added(addend, out);
      Tensor c(addend, out);
      MatMulArguments p;
      p.m = size.m;
      p.n = size.n;
      p.k = size.k;
      p.a = ta.data();
      p.b = tb.data();
      p.transpose_a = choice & 1;
      p.transpose_b = choice & 2;
      p.in_type = in;
      p.products = runner.products();
      p.c = c.data();
      p.out_type = out;
      p.addend = choice < 4 ? nullptr : choice < 8 ? c.data() : added.data();
      runner.Run(MatMul(runner.stream(), p));
      CAPTURE(variant, size.m, size.n, size.k, choice, Name(in));
      CheckNear("c", c.values(),
                Expected(p, a, b, p.addend != nullptr ? addend : Doubles(addend.size())), out, 1e-6,
                5e-3);
    }
  }
}

TEST_CASE("MatMul: an output type that is neither fp32 nor the input's is refused",
          "[examples][llama][errors]") {
  Runner runner;
  MatMulArguments p;
  p.out_type = DType::kBF16;
  const absl::Status status = MatMul(runner.stream(), p);
  CHECK_THAT(std::string(status.message()), ContainsSubstring("not bf16"));
}

}  // namespace
}  // namespace zero::llama
