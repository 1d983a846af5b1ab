// Causal attention, forward, with an online softmax: no score leaves the block that made it.
#include <cmath>

#include "examples/llama/cuda_attention.cuh"
#include "examples/llama/cuda_ops.h"

namespace zero::llama::cuda {
namespace {

// Queries of a warp, so that shared memory stays below 48 KiB.
template <int kWidth>
inline constexpr int kQueries = kWidth <= 128 ? 8 : 2;

// Block (batch, head, tile of queries), the longest rows first.
template <class T, int kWidth>
__global__ void AttentionKernel(AttentionArguments a, HeadShape shape, T* out, float* lse) {
  constexpr int kRows = kQueries<kWidth>;
  constexpr int kBlockRows = kWarps * kRows;
  ZERO_SHARED(Floats<kBlockRows * kWidth>, queries_array, 1);
  ZERO_SHARED(float, tile, kWarp* kTileStride<kWidth>);
  ZERO_SHARED(Floats<kBlockRows * kWarp>, weights_array, 1);
  float* const queries = queries_array[0].data;
  float* const weights = weights_array[0].data;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t tiles = CeilDiv(a.sequence, kBlockRows);
  const int64_t head = blockIdx.x / tiles % a.heads, batch = blockIdx.x / tiles / a.heads;
  const int64_t kv_head = head / (a.heads / a.kv_heads);
  const int64_t block_first = (tiles - 1 - blockIdx.x % tiles) * kBlockRows;
  const int64_t first = block_first + warp * kRows;  // row of this warp
  const auto keys = HeadOf(static_cast<const T*>(a.k), a, a.kv_heads, batch, kv_head);
  const auto values = HeadOf(static_cast<const T*>(a.v), a, a.kv_heads, batch, kv_head);
  LoadRows(shape, HeadOf(static_cast<const T*>(a.q), a, a.heads, batch, head), block_first,
           kBlockRows, shape.scale, queries, kWidth);

  float top[kRows], sum[kRows] = {}, result[kRows][kWidth / kWarp] = {};
  for (int r = 0; r < kRows; ++r) top[r] = -kInfinity;
  // Every row sees the first key of each of these tiles: kBlockRows divides kWarp.
  static_assert(kWarp % kBlockRows == 0);
  for (int64_t k0 = 0; k0 < block_first + kBlockRows; k0 += kWarp) {
    LoadRows(shape, keys, k0, kWarp, 1.0f, tile, kTileStride<kWidth>);
    __syncthreads();
    float score[kRows];
    RowProducts<kRows, kWidth>(queries + warp * kRows * kWidth, tile, lane, shape.padded, score);
    for (int r = 0; r < kRows; ++r) {
      const bool visible = k0 + lane <= first + r && k0 + lane < a.sequence;
      if (!visible) score[r] = -kInfinity;
      const float before = top[r];
      top[r] = fmaxf(before, WarpMax(score[r]));
      const float p = visible ? expf(score[r] - top[r]) : 0.0f;
      const float shrink = expf(before - top[r]);
      sum[r] = fmaf(sum[r], shrink, WarpSum(p));
      for (float& x : result[r]) x *= shrink;
      weights[(warp * kRows + r) * kWarp + lane] = p;
    }
    __syncthreads();
    LoadRows(shape, values, k0, kWarp, 1.0f, tile, kTileStride<kWidth>);
    __syncthreads();
    AddRows<kRows, kWidth>(weights + warp * kRows * kWarp, tile, lane, shape.padded, result);
    __syncthreads();
  }
  const auto to = HeadOf(out, a, a.heads, batch, head);
  for (int r = 0; r < kRows; ++r) {
    StoreRow<kWidth>(shape, result[r], 1.0f / sum[r], lane, to, first + r);
    if (lane == 0 && first + r < a.sequence) {
      lse[(batch * a.heads + head) * a.sequence + first + r] = top[r] + logf(sum[r]);
    }
  }
}

}  // namespace

absl::Status AttentionForward(const Stream& stream, const AttentionArguments& arguments, void* out,
                              float* lse) {
  return WithElement(arguments.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const HeadShape shape = ShapeOf<T>(arguments, {arguments.q, arguments.k, arguments.v});
    return WithWidth(arguments.head_dim, [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const int64_t tiles = CeilDiv(arguments.sequence, kWarps * kQueries<kWidth>);
      return Launch(stream, "attention", AttentionKernel<T, kWidth>,
                    arguments.batch * arguments.heads * tiles, kAttentionThreads, arguments, shape,
                    static_cast<T*>(out), lse);
    });
  });
}

}  // namespace zero::llama::cuda
