// What the kernels of attention share. A block has kWarps warps, each of which owns some rows (of
// queries, or of keys in the pass over keys) of one head. Tiles of kWarp rows of the other side
// pass through shared memory: in products of rows a lane owns one row of the tile, in sums over
// rows of the tile it owns columns.
#pragma once

#include "examples/llama/cuda_kernel.cuh"
#include "examples/llama/ops.h"

namespace zero::llama::cuda {

inline constexpr int kWarps = 4;
inline constexpr int kAttentionThreads = kWarps * kWarp;

// Rows of a tile are one float apart from a multiple of the banks: lanes that read a column of it
// do not meet.
template <int kWidth>
inline constexpr int kTileStride = kWidth + 1;

// Floats in shared memory that are read four at a time.
template <int kCount>
struct alignas(16) Floats {
  float data[kCount];
};

// A head of one sequence: element j of token t is data[t * stride + j].
template <class T>
struct Head {
  T* data;
  int64_t stride;
};

template <class T>
__device__ inline Head<T> HeadOf(T* tensor, const AttentionArguments& a, int64_t heads,
                                 int64_t batch, int64_t head) {
  return {tensor + (batch * a.sequence * heads + head) * a.head_dim, heads * a.head_dim};
}

// Sizes of one launch.
struct HeadShape {
  int64_t sequence;
  int width;   // of a head
  int padded;  // the same up to a multiple of kWarp; what is between is 0
  float scale;
  bool packed;  // rows can be read 16 bytes at a time
};

// to[i * to_stride + j] = scale * row first + i of the head, for i < count; 0 behind its width and
// behind the sequence. By the whole block; no barrier.
template <class T>
__device__ inline void LoadRows(const HeadShape& shape, Head<const T> from, int64_t first,
                                int count, float scale, float* to, int to_stride) {
  constexpr int V = kVector<T>;
  const int packs = shape.padded / V;
  for (int e = static_cast<int>(threadIdx.x); e < count * packs; e += kAttentionThreads) {
    const int row = e / packs, column = e % packs * V;
    const int left = first + row < shape.sequence ? shape.width - column : 0;
    const T* at = from.data + (first + row) * from.stride + column;
    float x[V] = {};
    if (shape.packed) {
      LoadPack<true>(at, left, x);
    } else {
      LoadPack<false>(at, left, x);
    }
    for (int j = 0; j < V; ++j) to[row * to_stride + column + j] = x[j] * scale;
  }
}

// products[r] = rows[r] . tile[lane].
template <int kRows, int kWidth>
__device__ inline void RowProducts(const float* rows, const float* tile, int lane, int padded,
                                   float (&products)[kRows]) {
  for (int r = 0; r < kRows; ++r) products[r] = 0;
  const float* other = tile + lane * kTileStride<kWidth>;
  for (int j = 0; j < padded; j += 4) {
    const float y[4] = {other[j], other[j + 1], other[j + 2], other[j + 3]};
    for (int r = 0; r < kRows; ++r) {
      float x[4];
      LoadPack<true>(rows + r * kWidth + j, 4, x);
      for (int i = 0; i < 4; ++i) products[r] = fmaf(x[i], y[i], products[r]);
    }
  }
}

// sums[r][c] += sum over i of weights[r][i] tile[i][c * kWarp + lane]; weights [kRows, kWarp].
template <int kRows, int kWidth>
__device__ inline void AddRows(const float* weights, const float* tile, int lane, int padded,
                               float (&sums)[kRows][kWidth / kWarp]) {
  constexpr int kColumns = kWidth / kWarp;
  for (int i0 = 0; i0 < kWarp; i0 += 4) {
    float x[kRows][4];
    for (int r = 0; r < kRows; ++r) LoadPack<true>(weights + r * kWarp + i0, 4, x[r]);
    for (int c = 0; c < kColumns; ++c) {
      if (c * kWarp >= padded) break;
      for (int i = 0; i < 4; ++i) {
        const float y = tile[(i0 + i) * kTileStride<kWidth> + c * kWarp + lane];
        for (int r = 0; r < kRows; ++r) sums[r][c] = fmaf(x[r][i], y, sums[r][c]);
      }
    }
  }
}

// Row `row` of the head = scale * sums, rounded.
template <int kWidth, class T>
__device__ inline void StoreRow(const HeadShape& shape, const float (&sums)[kWidth / kWarp],
                                float scale, int lane, Head<T> to, int64_t row) {
  if (row >= shape.sequence) return;
  for (int c = 0; c < kWidth / kWarp; ++c) {
    const int column = c * kWarp + lane;
    if (column < shape.width) RoundTo(sums[c] * scale, to.data + row * to.stride + column);
  }
}

// Calls f with the smallest width there are kernels for that a head fits in. kInvalidArgument:
// there is none.
template <class F>
absl::Status WithWidth(int64_t head_dim, F f) {
  if (head_dim <= 64) return f(std::integral_constant<int, 64>());
  if (head_dim <= 128) return f(std::integral_constant<int, 128>());
  if (head_dim <= 256) return f(std::integral_constant<int, 256>());
  return absl::InvalidArgumentError(absl::StrCat("attention on a CUDA device: head_dim is ",
                                                 head_dim, "; there are kernels up to 256"));
}

template <class T>
HeadShape ShapeOf(const AttentionArguments& a, std::initializer_list<const void*> tensors) {
  HeadShape shape = {};
  shape.sequence = a.sequence;
  shape.width = static_cast<int>(a.head_dim);
  shape.padded = static_cast<int>(CeilDiv(a.head_dim, kWarp) * kWarp);
  shape.scale = 1.0f / sqrtf(static_cast<float>(a.head_dim));
  shape.packed = a.head_dim % kVector<T> == 0;
  for (const void* tensor : tensors) {
    shape.packed &= PackAligned(static_cast<const T*>(tensor), kVector<T>);
  }
  return shape;
}

}  // namespace zero::llama::cuda
