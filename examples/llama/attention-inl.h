// What attention forward and backward share: fp32 tiles and their products. Included once per SIMD
// target.
#if defined(ZERO_EXAMPLES_LLAMA_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZERO_EXAMPLES_LLAMA_ATTENTION_INL_H_
#undef ZERO_EXAMPLES_LLAMA_ATTENTION_INL_H_
#else
#define ZERO_EXAMPLES_LLAMA_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "examples/llama/ops.h"
#include "examples/llama/scratch.h"
#include "examples/llama/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zero::llama::HWY_NAMESPACE {

// Rows of a tile of queries and of a tile of keys.
inline constexpr size_t kTile = 64;

// A(i, p) at data[i * row + p * column].
struct Left {
  const float* data;
  size_t row, column;
};

// R rows and N vectors of C += A B. The sums stay in registers.
template <size_t R, size_t N>
HWY_INLINE void BlockProduct(Left a, const float* b, size_t b_stride, float* c, size_t c_stride,
                             size_t k) {
  const size_t lanes = Lanes();
  Vec sum[R][N];
  HWY_UNROLL(8)
  for (size_t i = 0; i < R; ++i) {
    HWY_UNROLL(8)
    for (size_t j = 0; j < N; ++j) sum[i][j] = Load(c + i * c_stride + j * lanes);
  }
  for (size_t p = 0; p < k; ++p) {
    Vec row[N];
    HWY_UNROLL(8)
    for (size_t j = 0; j < N; ++j) row[j] = Load(b + p * b_stride + j * lanes);
    HWY_UNROLL(8)
    for (size_t i = 0; i < R; ++i) {
      const Vec factor = Set(a.data[i * a.row + p * a.column]);
      HWY_UNROLL(8)
      for (size_t j = 0; j < N; ++j) sum[i][j] = hn::MulAdd(factor, row[j], sum[i][j]);
    }
  }
  HWY_UNROLL(8)
  for (size_t i = 0; i < R; ++i) {
    HWY_UNROLL(8)
    for (size_t j = 0; j < N; ++j) Store(sum[i][j], c + i * c_stride + j * lanes);
  }
}

template <size_t R, size_t N>
HWY_INLINE void ColumnProduct(size_t m, Left a, const float* b, size_t b_stride, float* c,
                              size_t c_stride, size_t k) {
  size_t i = 0;
  for (; i + R <= m; i += R) {
    BlockProduct<R, N>({a.data + i * a.row, a.row, a.column}, b, b_stride, c + i * c_stride,
                       c_stride, k);
  }
  for (; i < m; ++i) {
    BlockProduct<1, N>({a.data + i * a.row, a.row, a.column}, b, b_stride, c + i * c_stride,
                       c_stride, k);
  }
}

// C [m, n] += A [m, k] B [k, n]; n is a multiple of the number of lanes.
static HWY_NOINLINE void AddProduct(size_t m, size_t n, size_t k, Left a, const float* b,
                                    size_t b_stride, float* c, size_t c_stride) {
  const size_t lanes = Lanes();
  size_t j = 0;
#if HWY_TARGET <= HWY_AVX3  // 32 registers
  for (; j + 4 * lanes <= n; j += 4 * lanes) {
    ColumnProduct<4, 4>(m, a, b + j, b_stride, c + j, c_stride, k);
  }
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    ColumnProduct<8, 2>(m, a, b + j, b_stride, c + j, c_stride, k);
  }
#else
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    ColumnProduct<4, 2>(m, a, b + j, b_stride, c + j, c_stride, k);
  }
#endif
  for (; j < n; j += lanes) ColumnProduct<8, 1>(m, a, b + j, b_stride, c + j, c_stride, k);
}

// Where one head lies in a tensor [tokens, heads * head_dim]: `data` is its first element of token
// 0 of a sequence, `stride` the elements from token to token.
template <class T>
struct Head {
  T* data;
  size_t stride;
};

template <class T>
HWY_INLINE Head<T> HeadOf(T* tensor, const AttentionArguments& a, int64_t heads, int64_t batch,
                          int64_t head) {
  return {tensor + batch * a.sequence * heads * a.head_dim + head * a.head_dim,
          static_cast<size_t>(heads * a.head_dim)};
}

// Sizes that all loops use.
struct Shape {
  explicit Shape(const AttentionArguments& a)
      : width(static_cast<size_t>(a.head_dim)),
        padded(Scratch::RoundUp(static_cast<size_t>(a.head_dim))),
        rows(static_cast<size_t>(a.sequence)),
        tiles((rows + kTile - 1) / kTile),
        scale(1.0f / std::sqrt(static_cast<float>(a.head_dim))) {}
  size_t RowsOf(size_t tile) const { return std::min(kTile, rows - tile * kTile); }

  size_t width;   // of a head
  size_t padded;  // the same up to whole vectors; what is between is 0
  size_t rows;    // tokens of a sequence
  size_t tiles;
  float scale;
};

// out [count, padded] = rows of a head, times `scale`.
template <class T>
HWY_INLINE void PackRows(const Shape& shape, Head<const T> head, size_t first, size_t count,
                         float scale, float* out) {
  const Vec factor = Set(scale);
  for (size_t i = 0; i < count; ++i) {
    const T* from = head.data + (first + i) * head.stride;
    float* to = out + i * shape.padded;
    ForVectors(shape.width, [=](size_t j, auto part) HWY_ATTR {
      Store(hn::Mul(Load(from + j, part), factor), to + j, part);
    });
    std::fill(to + shape.width, to + shape.padded, 0.0f);
  }
}

// out [tiles][width][kTile]: the transposed tiles of a head, behind the last token 0.
template <class T>
HWY_INLINE void PackColumns(const Shape& shape, Head<const T> head, float* out) {
  for (size_t tile = 0; tile < shape.tiles; ++tile, out += shape.width * kTile) {
    const size_t count = shape.RowsOf(tile);
    if (count < kTile) std::fill(out, out + shape.width * kTile, 0.0f);
    for (size_t i = 0; i < count; ++i) {
      const T* from = head.data + (tile * kTile + i) * head.stride;
      for (size_t j = 0; j < shape.width; ++j) out[j * kTile + i] = ToFloat(from[j]);
    }
  }
}

// Rows of a head = in [count, padded], times `scale`.
template <class T>
HWY_INLINE void UnpackRows(const Shape& shape, const float* in, float scale, Head<T> head,
                           size_t first, size_t count) {
  const Vec factor = Set(scale);
  for (size_t i = 0; i < count; ++i) {
    const float* from = in + i * shape.padded;
    T* to = head.data + (first + i) * head.stride;
    ForVectors(shape.width, [=](size_t j, auto part) HWY_ATTR {
      Store(hn::Mul(Load(from + j, part), factor), to + j, part);
    });
  }
}

// Keys of tile `keys` that query `row` of tile `queries` may look at.
HWY_INLINE size_t VisibleKeys(size_t queries, size_t keys, size_t row) {
  return keys == queries ? row + 1 : kTile;
}

// row[i] = exp(row[i] - shift) for i < count, 0 from there to kTile; their sum.
HWY_INLINE Vec ExpRow(float* row, size_t count, Vec shift) {
  const FloatTag d;
  const size_t lanes = Lanes();
  Vec sum = Zero();
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Vec p = Exp(hn::Sub(Load(row + i), shift));
    sum = hn::Add(sum, p);
    Store(p, row + i);
  }
  if (i < count) {
    const Vec p = hn::IfThenElseZero(hn::FirstN(d, count - i), Exp(hn::Sub(Load(row + i), shift)));
    sum = hn::Add(sum, p);
    Store(p, row + i);
    i += lanes;
  }
  for (; i < kTile; i += lanes) Store(Zero(), row + i);
  return sum;
}

}  // namespace zero::llama::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ZERO_EXAMPLES_LLAMA_ATTENTION_INL_H_
