// Causal attention, backward. With S = scale q k', P = exp(S - lse), and D the sum of d_out out of
// a row: dv = P' d_out, dS = P (d_out v' - D), dq = scale dS k, dk = scale dS' q. One pass over the
// keys makes dq, one over the queries dk and dv; both make the scores again.
#include <cmath>

#include "device/status.h"
#include "examples/llama/cuda_attention.cuh"
#include "examples/llama/cuda_ops.h"

namespace zero::llama::cuda {
namespace {

// Rows of a warp, so that shared memory stays below 48 KiB.
template <int kWidth>
inline constexpr int kOwned = kWidth <= 64    ? 8
                              : kWidth <= 128 ? 4
                                              : 1;

// D of one row, in every lane of the warp; 0 behind the sequence.
template <class T>
__device__ inline float RowSum(const HeadShape& shape, Head<const T> d_out, Head<const T> out,
                               int64_t row, int lane) {
  float sum = 0;
  for (int j = lane; row < shape.sequence && j < shape.width; j += kWarp) {
    sum = fmaf(ToFloat(d_out.data[row * d_out.stride + j]), ToFloat(out.data[row * out.stride + j]),
               sum);
  }
  return WarpSum(sum);
}

// Block (batch, head, tile of queries), the longest rows first.
template <class T, int kWidth>
__global__ void QueryGradientKernel(AttentionArguments a, AttentionGradients g, HeadShape shape) {
  constexpr int kRows = kOwned<kWidth>;
  constexpr int kBlockRows = kWarps * kRows;
  ZERO_SHARED(Floats<kBlockRows * kWidth>, queries_array, 1);
  ZERO_SHARED(Floats<kBlockRows * kWidth>, d_rows_array, 1);
  ZERO_SHARED(float, tile, kWarp* kTileStride<kWidth>);
  ZERO_SHARED(Floats<kBlockRows * kWarp>, weights_array, 1);
  float* const queries = queries_array[0].data;
  float* const d_rows = d_rows_array[0].data;
  float* const weights = weights_array[0].data;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t tiles = CeilDiv(a.sequence, kBlockRows);
  const int64_t head = blockIdx.x / tiles % a.heads, batch = blockIdx.x / tiles / a.heads;
  const int64_t kv_head = head / (a.heads / a.kv_heads);
  const int64_t block_first = (tiles - 1 - blockIdx.x % tiles) * kBlockRows;
  const int64_t first = block_first + warp * kRows;
  const auto keys = HeadOf(static_cast<const T*>(a.k), a, a.kv_heads, batch, kv_head);
  const auto values = HeadOf(static_cast<const T*>(a.v), a, a.kv_heads, batch, kv_head);
  const auto out = HeadOf(static_cast<const T*>(g.out), a, a.heads, batch, head);
  const auto d_out = HeadOf(static_cast<const T*>(g.d_out), a, a.heads, batch, head);
  LoadRows(shape, HeadOf(static_cast<const T*>(a.q), a, a.heads, batch, head), block_first,
           kBlockRows, shape.scale, queries, kWidth);
  LoadRows(shape, d_out, block_first, kBlockRows, 1.0f, d_rows, kWidth);
  float row_sum[kRows], lse[kRows], result[kRows][kWidth / kWarp] = {};
  for (int r = 0; r < kRows; ++r) {
    row_sum[r] = RowSum(shape, d_out, out, first + r, lane);
    lse[r] = first + r < a.sequence ? g.lse[(batch * a.heads + head) * a.sequence + first + r] : 0;
  }
  for (int64_t k0 = 0; k0 < block_first + kBlockRows; k0 += kWarp) {
    LoadRows(shape, values, k0, kWarp, 1.0f, tile, kTileStride<kWidth>);
    __syncthreads();
    float d_p[kRows], score[kRows];
    RowProducts<kRows, kWidth>(d_rows + warp * kRows * kWidth, tile, lane, shape.padded, d_p);
    __syncthreads();
    LoadRows(shape, keys, k0, kWarp, 1.0f, tile, kTileStride<kWidth>);
    __syncthreads();
    RowProducts<kRows, kWidth>(queries + warp * kRows * kWidth, tile, lane, shape.padded, score);
    for (int r = 0; r < kRows; ++r) {
      const bool visible = k0 + lane <= first + r && first + r < a.sequence;
      const float p = visible ? expf(score[r] - lse[r]) : 0.0f;
      weights[(warp * kRows + r) * kWarp + lane] = visible ? p * (d_p[r] - row_sum[r]) : 0.0f;
    }
    __syncwarp();
    AddRows<kRows, kWidth>(weights + warp * kRows * kWarp, tile, lane, shape.padded, result);
    __syncthreads();
  }
  const auto to = HeadOf(static_cast<T*>(g.d_q), a, a.heads, batch, head);
  for (int r = 0; r < kRows; ++r) {
    StoreRow<kWidth>(shape, result[r], shape.scale, lane, to, first + r);
  }
}

// Block (batch, key-value head, tile of keys), the most queries first.
template <class T, int kWidth>
__global__ void KeyGradientKernel(AttentionArguments a, AttentionGradients g, HeadShape shape) {
  constexpr int kRows = kOwned<kWidth>;
  constexpr int kBlockRows = kWarps * kRows;
  ZERO_SHARED(Floats<kBlockRows * kWidth>, keys_array, 1);
  ZERO_SHARED(Floats<kBlockRows * kWidth>, values_array, 1);
  ZERO_SHARED(float, tile, kWarp* kTileStride<kWidth>);
  ZERO_SHARED(Floats<kBlockRows * kWarp>, p_weights_array, 1);
  ZERO_SHARED(Floats<kBlockRows * kWarp>, s_weights_array, 1);
  ZERO_SHARED(float, row_sums, kWarp);
  float* const keys = keys_array[0].data;
  float* const values = values_array[0].data;
  float* const p_weights = p_weights_array[0].data;
  float* const s_weights = s_weights_array[0].data;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t tiles = CeilDiv(a.sequence, kBlockRows);
  const int64_t kv_head = blockIdx.x / tiles % a.kv_heads, batch = blockIdx.x / tiles / a.kv_heads;
  const int64_t block_first = blockIdx.x % tiles * kBlockRows;
  const int64_t first = block_first + warp * kRows;
  const int64_t group = a.heads / a.kv_heads;
  LoadRows(shape, HeadOf(static_cast<const T*>(a.k), a, a.kv_heads, batch, kv_head), block_first,
           kBlockRows, 1.0f, keys, kWidth);
  LoadRows(shape, HeadOf(static_cast<const T*>(a.v), a, a.kv_heads, batch, kv_head), block_first,
           kBlockRows, 1.0f, values, kWidth);
  float d_key[kRows][kWidth / kWarp] = {}, d_value[kRows][kWidth / kWarp] = {};
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const auto queries = HeadOf(static_cast<const T*>(a.q), a, a.heads, batch, head);
    const auto out = HeadOf(static_cast<const T*>(g.out), a, a.heads, batch, head);
    const auto d_out = HeadOf(static_cast<const T*>(g.d_out), a, a.heads, batch, head);
    const float* lse = g.lse + (batch * a.heads + head) * a.sequence;
    for (int64_t q0 = block_first / kWarp * kWarp; q0 < a.sequence; q0 += kWarp) {
      const int64_t query = q0 + lane;
      LoadRows(shape, queries, q0, kWarp, shape.scale, tile, kTileStride<kWidth>);
      for (int i = warp; i < kWarp; i += kWarps) {
        const float sum = RowSum(shape, d_out, out, q0 + i, lane);
        if (lane == 0) row_sums[i] = sum;
      }
      __syncthreads();
      float p[kRows], d_p[kRows];
      RowProducts<kRows, kWidth>(keys + warp * kRows * kWidth, tile, lane, shape.padded, p);
      for (int r = 0; r < kRows; ++r) {
        const bool visible = first + r <= query && query < a.sequence;
        p[r] = visible ? expf(p[r] - lse[query]) : 0.0f;
        p_weights[(warp * kRows + r) * kWarp + lane] = p[r];
      }
      __syncthreads();
      LoadRows(shape, d_out, q0, kWarp, 1.0f, tile, kTileStride<kWidth>);
      __syncthreads();
      RowProducts<kRows, kWidth>(values + warp * kRows * kWidth, tile, lane, shape.padded, d_p);
      for (int r = 0; r < kRows; ++r) {
        s_weights[(warp * kRows + r) * kWarp + lane] = p[r] * (d_p[r] - row_sums[lane]);
      }
      AddRows<kRows, kWidth>(p_weights + warp * kRows * kWarp, tile, lane, shape.padded, d_value);
      __syncthreads();
      LoadRows(shape, queries, q0, kWarp, shape.scale, tile, kTileStride<kWidth>);
      __syncthreads();
      AddRows<kRows, kWidth>(s_weights + warp * kRows * kWarp, tile, lane, shape.padded, d_key);
      __syncthreads();
    }
  }
  const auto to_key = HeadOf(static_cast<T*>(g.d_k), a, a.kv_heads, batch, kv_head);
  const auto to_value = HeadOf(static_cast<T*>(g.d_v), a, a.kv_heads, batch, kv_head);
  for (int r = 0; r < kRows; ++r) {
    StoreRow<kWidth>(shape, d_key[r], 1.0f, lane, to_key, first + r);
    StoreRow<kWidth>(shape, d_value[r], 1.0f, lane, to_value, first + r);
  }
}

}  // namespace

absl::Status AttentionBackward(const Stream& stream, const AttentionArguments& arguments,
                               const AttentionGradients& gradients) {
  return WithElement(arguments.dtype, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const HeadShape shape =
        ShapeOf<T>(arguments, {arguments.q, arguments.k, arguments.v, gradients.d_out});
    return WithWidth(arguments.head_dim, [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const int64_t tiles = CeilDiv(arguments.sequence, kWarps * kOwned<kWidth>);
      ZERO_RETURN_IF_ERROR(Launch(stream, "attention backward of queries",
                                  QueryGradientKernel<T, kWidth>,
                                  arguments.batch * arguments.heads * tiles, kAttentionThreads,
                                  arguments, gradients, shape));
      return Launch(stream, "attention backward of keys", KeyGradientKernel<T, kWidth>,
                    arguments.batch * arguments.kv_heads * tiles, kAttentionThreads, arguments,
                    gradients, shape);
    });
  });
}

}  // namespace zero::llama::cuda
