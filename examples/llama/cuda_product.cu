// Matrix products by tiles in shared memory: what is there where cuBLASLt is not.
#include "examples/llama/cuda_kernel.cuh"
#include "examples/llama/cuda_ops.h"

namespace zero::llama::cuda {
namespace {

// A block makes kTile x kTile of C, kDepth of the sum at a time; a thread kPatch x kPatch of that.
constexpr int kTile = 64;
constexpr int kDepth = 16;
constexpr int kPatch = 4;
constexpr int kSide = kTile / kPatch;  // threads
constexpr int kThreads = kSide * kSide;

// Where an operand's element (i, p) is, `i` in the rows of A or columns of B, `p` in the sum.
template <class T>
struct Operand {
  const T* data;
  int64_t i_stride, p_stride;
  int64_t i_count, p_count;
};

// tile[p][i] of the operand, 0 behind its end. Neighbours in memory go to neighbouring threads.
template <class T>
__device__ inline void LoadTile(const Operand<T>& operand, int64_t i0, int64_t p0, float* tile) {
  for (int e = static_cast<int>(threadIdx.x); e < kTile * kDepth; e += kThreads) {
    const bool i_first = operand.i_stride == 1;
    const int i = i_first ? e % kTile : e / kDepth;
    const int p = i_first ? e / kTile : e % kDepth;
    const bool inside = i0 + i < operand.i_count && p0 + p < operand.p_count;
    tile[p * (kTile + 1) + i] =
        inside ? ToFloat(operand.data[(i0 + i) * operand.i_stride + (p0 + p) * operand.p_stride])
               : 0.0f;
  }
}

template <class In, class Out>
__global__ void ProductKernel(Operand<In> a, Operand<In> b, int64_t column_tiles, const Out* addend,
                              Out* c, int64_t c_stride) {
  ZERO_SHARED(float, a_tile, kDepth*(kTile + 1));
  ZERO_SHARED(float, b_tile, kDepth*(kTile + 1));
  const int64_t row = blockIdx.x / column_tiles * kTile;
  const int64_t column = blockIdx.x % column_tiles * kTile;
  const int y = static_cast<int>(threadIdx.x) / kSide, x = static_cast<int>(threadIdx.x) % kSide;
  float sum[kPatch][kPatch] = {};
  for (int64_t p0 = 0; p0 < a.p_count; p0 += kDepth) {
    LoadTile(a, row, p0, a_tile);
    LoadTile(b, column, p0, b_tile);
    __syncthreads();
    for (int p = 0; p < kDepth; ++p) {
      float left[kPatch], right[kPatch];
      for (int i = 0; i < kPatch; ++i) left[i] = a_tile[p * (kTile + 1) + y + i * kSide];
      for (int j = 0; j < kPatch; ++j) right[j] = b_tile[p * (kTile + 1) + x + j * kSide];
      for (int i = 0; i < kPatch; ++i) {
        for (int j = 0; j < kPatch; ++j) sum[i][j] = fmaf(left[i], right[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kPatch; ++i) {
    for (int j = 0; j < kPatch; ++j) {
      const int64_t m = row + y + i * kSide, n = column + x + j * kSide;
      if (m >= a.i_count || n >= b.i_count) continue;
      const int64_t at = m * c_stride + n;
      RoundTo(addend != nullptr ? sum[i][j] + ToFloat(addend[at]) : sum[i][j], c + at);
    }
  }
}

template <class In, class Out>
absl::Status LaunchProduct(const Stream& stream, const Product& p) {
  const Operand<In> a{static_cast<const In*>(p.a), p.transpose_a ? 1 : p.a_stride,
                      p.transpose_a ? p.a_stride : 1, p.m, p.k};
  const Operand<In> b{static_cast<const In*>(p.b), p.transpose_b ? p.b_stride : 1,
                      p.transpose_b ? 1 : p.b_stride, p.n, p.k};
  const int64_t column_tiles = CeilDiv(p.n, kTile);
  return Launch(stream, "matmul", ProductKernel<In, Out>, CeilDiv(p.m, kTile) * column_tiles,
                kThreads, a, b, column_tiles, static_cast<const Out*>(p.addend),
                static_cast<Out*>(p.c), p.c_stride);
}

}  // namespace

absl::Status TiledProduct(const Stream& stream, const Product& product) {
  return WithElement(product.in_type, [&](auto* in) {
    using In = std::remove_pointer_t<decltype(in)>;
    return product.out_type == DType::kF32 ? LaunchProduct<In, float>(stream, product)
                                           : LaunchProduct<In, In>(stream, product);
  });
}

}  // namespace zero::llama::cuda
