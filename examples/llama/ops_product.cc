// Matrix products.
#include <algorithm>
#include <atomic>
#include <vector>

#include "examples/llama/cuda_ops.h"
#include "examples/llama/cuda_products.h"
#include "examples/llama/host_op.h"
#include "examples/llama/ops.h"
#include "examples/llama/product.h"

namespace zero::llama {
namespace {

std::atomic<ProductLibrary> library{ProductLibrary::kAuto};

// Tiles whose fp32 copies stay in the caches, and are large enough to be worth their making.
constexpr int64_t kRows = 512, kColumns = 512, kDepth = 512;

// Rows [row, row + rows) and columns [column, column + columns) of a matrix in memory, as fp32.
template <class T>
void Widen(const void* matrix, int64_t stride, int64_t row, int64_t rows, int64_t column,
           int64_t columns, float* out) {
  for (int64_t i = 0; i < rows; ++i) {
    const T* from = static_cast<const T*>(matrix) + (row + i) * stride + column;
    for (int64_t j = 0; j < columns; ++j) out[i * columns + j] = ToFloat(from[j]);
  }
}

// A tile of an operand: `i` runs over the rows of A or the columns of B, `p` over the sum.
void WidenOperand(const Product& product, const void* matrix, int64_t stride, bool sum_is_row,
                  int64_t i, int64_t i_count, int64_t p, int64_t p_count, float* out) {
  WithElement(product.in_type, [=](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    if (sum_is_row) {
      Widen<T>(matrix, stride, p, p_count, i, i_count, out);
    } else {
      Widen<T>(matrix, stride, i, i_count, p, p_count, out);
    }
  });
}

void Fp32Product(const Product& product) {
  if (library.load(std::memory_order_relaxed) == ProductLibrary::kAuto && DnnlProduct(product)) {
    return;
  }
  EigenProduct(product);
}

// c = sum + addend over one tile of C.
template <class T>
void Finish(const Product& product, int64_t row, int64_t rows, int64_t column, int64_t columns,
            const float* sum) {
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t first = (row + i) * product.c_stride + column;
    T* to = static_cast<T*>(product.c) + first;
    const T* add = static_cast<const T*>(product.addend);
    for (int64_t j = 0; j < columns; ++j) {
      const float value = sum[i * columns + j];
      to[j] = FromFloat<T>(add != nullptr ? value + ToFloat(add[first + j]) : value);
    }
  }
}

}  // namespace

void SetProductLibrary(ProductLibrary value) { library.store(value, std::memory_order_relaxed); }

void WidenedProduct(const Product& product) {
  thread_local std::vector<float> a(kRows * kDepth), b(kDepth * kColumns), c(kRows * kColumns);
  Product tile = product;
  tile.in_type = tile.out_type = DType::kF32;
  tile.a = a.data();
  tile.b = b.data();
  tile.c = c.data();
  for (int64_t row = 0; row < product.m; row += kRows) {
    tile.m = std::min(kRows, product.m - row);
    for (int64_t column = 0; column < product.n; column += kColumns) {
      tile.n = tile.c_stride = std::min(kColumns, product.n - column);
      if (product.k == 0) std::fill(c.begin(), c.end(), 0.0f);
      for (int64_t depth = 0; depth < product.k; depth += kDepth) {
        tile.k = std::min(kDepth, product.k - depth);
        tile.a_stride = tile.transpose_a ? tile.m : tile.k;
        tile.b_stride = tile.transpose_b ? tile.k : tile.n;
        WidenOperand(product, product.a, product.a_stride, product.transpose_a, row, tile.m, depth,
                     tile.k, a.data());
        WidenOperand(product, product.b, product.b_stride, !product.transpose_b, column, tile.n,
                     depth, tile.k, b.data());
        tile.addend = depth == 0 ? nullptr : c.data();
        Fp32Product(tile);
      }
      WithElement(product.out_type, [&](auto* t) {
        using T = std::remove_pointer_t<decltype(t)>;
        Finish<T>(product, row, tile.m, column, tile.n, c.data());
      });
    }
  }
}

void RunProduct(const Product& product) {
  if (product.in_type == DType::kF32 && product.out_type == DType::kF32) {
    Fp32Product(product);
    return;
  }
  if (library.load(std::memory_order_relaxed) == ProductLibrary::kAuto && DnnlProduct(product)) {
    return;
  }
  WidenedProduct(product);
}

absl::Status MatMul(const Stream& stream, const MatMulArguments& arguments) {
  if (arguments.out_type != DType::kF32 && arguments.out_type != arguments.in_type) {
    return absl::InvalidArgumentError(
        absl::StrCat("MatMul: the output may be fp32 or, like the input, ", Name(arguments.in_type),
                     "; not ", Name(arguments.out_type)));
  }
  if (arguments.m < 0 || arguments.n < 0 || arguments.k < 0 || arguments.threads < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("MatMul: m, n, k must be >= 0 and threads >= 1; they are ", arguments.m, ", ",
                     arguments.n, ", ", arguments.k, " and ", arguments.threads));
  }
  if (arguments.m == 0 || arguments.n == 0) return absl::OkStatus();
  Product product;
  product.m = arguments.m;
  product.n = arguments.n;
  product.k = arguments.k;
  product.a = arguments.a;
  product.b = arguments.b;
  product.transpose_a = arguments.transpose_a;
  product.transpose_b = arguments.transpose_b;
  product.a_stride = arguments.transpose_a ? arguments.m : arguments.k;
  product.b_stride = arguments.transpose_b ? arguments.k : arguments.n;
  product.c_stride = arguments.n;
  product.in_type = arguments.in_type;
  product.c = arguments.c;
  product.out_type = arguments.out_type;
  product.addend = arguments.addend;
  product.threads = arguments.threads;
  if (OnCuda(stream)) {
    return arguments.products != nullptr ? arguments.products->Run(stream, product)
                                         : cuda::TiledProduct(stream, product);
  }
  return stream.Enqueue("matmul", [product] {
    RunProduct(product);
    return absl::OkStatus();
  });
}

}  // namespace zero::llama
