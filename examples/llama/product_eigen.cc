#include <Eigen/Core>

#include "examples/llama/product.h"

namespace zero::llama {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Stride = Eigen::OuterStride<>;
using In = Eigen::Map<const RowMajor, 0, Stride>;
using Out = Eigen::Map<RowMajor, 0, Stride>;

In Input(const void* data, int64_t rows, int64_t columns, bool transposed, int64_t stride) {
  return In(static_cast<const float*>(data), transposed ? columns : rows,
            transposed ? rows : columns, Stride(stride));
}

}  // namespace

void EigenProduct(const Product& p) {
  const In a = Input(p.a, p.m, p.k, p.transpose_a, p.a_stride);
  const In b = Input(p.b, p.k, p.n, p.transpose_b, p.b_stride);
  Out c(static_cast<float*>(p.c), p.m, p.n, Stride(p.c_stride));
  if (p.addend == nullptr) {
    c.setZero();
  } else if (p.addend != p.c) {
    c = Input(p.addend, p.m, p.n, false, p.c_stride);
  }
  if (p.transpose_a && p.transpose_b) {
    c.noalias() += a.transpose() * b.transpose();
  } else if (p.transpose_a) {
    c.noalias() += a.transpose() * b;
  } else if (p.transpose_b) {
    c.noalias() += a * b.transpose();
  } else {
    c.noalias() += a * b;
  }
}

}  // namespace zero::llama
