#include "examples/llama/ops.h"
#include "tests/examples/product_library.h"
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

TEST_CASE("MatMul: every transpose, type and addend gives the product in double, by each library",
          "[examples][llama]") {
  const auto library = GENERATE(ProductLibrary::kAuto, ProductLibrary::kEigen);
  const Case size = GENERATE(Case{1, 1, 1}, Case{7, 37, 24}, Case{64, 33, 130}, Case{150, 140, 270},
                             Case{3, 5, 0});
  const WithLibrary with(library);
  Host host;
  for (const auto& [in, out] :
       {std::pair(DType::kF32, DType::kF32), std::pair(DType::kBF16, DType::kF32),
        std::pair(DType::kBF16, DType::kBF16)}) {
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
      p.c = c.data();
      p.out_type = out;
      p.addend = choice < 4 ? nullptr : choice < 8 ? c.data() : added.data();
      host.Run(MatMul(host.stream(), p));
      CAPTURE(size.m, size.n, size.k, choice, Name(in));
      CheckNear("c", c.values(),
                Expected(p, a, b, p.addend != nullptr ? addend : Doubles(addend.size())), out, 1e-6,
                5e-3);
    }
  }
}

TEST_CASE("MatMul: two threads give the same bits as one", "[examples][llama]") {
  const DType in = GENERATE(DType::kF32, DType::kBF16);
  const Case size = GENERATE(Case{96, 80, 1000}, Case{16, 16, 4096}, Case{512, 256, 640});
  const bool transpose = GENERATE(false, true);
  Host host;
  const Tensor a(RandomValues(size.m * size.k, 1), in), b(RandomValues(size.k * size.n, 2), in);
  Tensor one(size.m * size.n, DType::kF32), two(one);
  MatMulArguments p;
  p.m = size.m;
  p.n = size.n;
  p.k = size.k;
  p.a = a.data();
  p.b = b.data();
  p.in_type = in;
  p.transpose_a = transpose;
  p.c = one.data();
  host.Run(MatMul(host.stream(), p));
  p.c = two.data();
  p.threads = 2;
  host.Run(MatMul(host.stream(), p));
  CHECK(one == two);
}

TEST_CASE("MatMul: an output type that is neither fp32 nor the input's is refused",
          "[examples][llama][errors]") {
  Host host;
  MatMulArguments p;
  p.out_type = DType::kBF16;
  const absl::Status status = MatMul(host.stream(), p);
  CHECK_THAT(std::string(status.message()), ContainsSubstring("not bf16"));
}

}  // namespace
}  // namespace zero::llama
