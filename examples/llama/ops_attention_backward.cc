// Causal attention, backward. With S = scale q k', P = exp(S - lse), and D the sum of d_out out of
// a row: dv = P' d_out, dS = P (d_out v' - D), dq = scale dS k, dk = scale dS' q.
#include "examples/llama/cuda_ops.h"
#include "examples/llama/host_op.h"
#include "examples/llama/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "examples/llama/ops_attention_backward.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "examples/llama/attention-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zero::llama::HWY_NAMESPACE {

// What a thread keeps for one key-value head of one sequence and for one pair of tiles.
struct BackwardTiles {
  float* keys;             // [rows, padded]
  float* keys_across;      // [tiles][width][kTile]
  float* values_across;    // [tiles][width][kTile]
  float* d_query;          // [group][rows, padded], sums over tiles of keys
  float* row_products;     // [group][rows], D
  float* query;            // [kTile, padded], times scale
  float* d_out;            // [kTile, padded]
  float* scores;           // [kTile, kTile], then P
  float* d_scores;         // [kTile, kTile]
  float *d_key, *d_value;  // [kTile, padded], sums over queries
};

HWY_INLINE BackwardTiles TakeTiles(const Shape& shape, size_t group, Scratch& scratch) {
  const size_t rows = shape.rows * shape.padded;
  const size_t across = shape.tiles * shape.width * kTile;
  const size_t row_tile = kTile * shape.padded;
  scratch.Reset(Scratch::RoundUp(rows) + 2 * Scratch::RoundUp(across) +
                Scratch::RoundUp(group * rows) + Scratch::RoundUp(group * shape.rows) +
                4 * row_tile + 2 * kTile * kTile);
  BackwardTiles t;
  t.keys = scratch.Take(rows);
  t.keys_across = scratch.Take(across);
  t.values_across = scratch.Take(across);
  t.d_query = scratch.Take(group * rows);
  t.row_products = scratch.Take(group * shape.rows);
  t.query = scratch.Take(row_tile);
  t.d_out = scratch.Take(row_tile);
  t.scores = scratch.Take(kTile * kTile);
  t.d_scores = scratch.Take(kTile * kTile);
  t.d_key = scratch.Take(row_tile);
  t.d_value = scratch.Take(row_tile);
  return t;
}

// out[i] = sum over a head's width of a b, row by row.
template <class T>
HWY_INLINE void RowProducts(const Shape& shape, Head<const T> a, Head<const T> b, float* out) {
  for (size_t i = 0; i < shape.rows; ++i) {
    const T* left = a.data + i * a.stride;
    const T* right = b.data + i * b.stride;
    Vec sum = Zero();
    ForVectors(shape.width, [&](size_t j, auto part) HWY_ATTR {
      sum = hn::MulAdd(Load(left + j, part), Load(right + j, part), sum);
    });
    out[i] = SumLanes(sum);
  }
}

// d_scores = P (d_scores - D), row by row.
HWY_INLINE void ScoreGradient(size_t count, const float* row_products, const float* p,
                              float* d_scores) {
  const size_t lanes = Lanes();
  for (size_t i = 0; i < count; ++i) {
    const Vec product = Set(row_products[i]);
    for (size_t j = i * kTile; j < (i + 1) * kTile; j += lanes) {
      Store(hn::Mul(Load(p + j), hn::Sub(Load(d_scores + j), product)), d_scores + j);
    }
  }
}

// Adds what one tile of queries of one head gives to one tile of keys, and gets from it.
template <class T>
void AddTilePair(const Shape& shape, const BackwardTiles& t, Head<const T> query,
                 Head<const T> d_out, const float* lse, const float* row_products, float* d_query,
                 size_t queries, size_t keys) {
  const size_t first = queries * kTile;
  const size_t count = shape.RowsOf(queries);
  const size_t key_count = shape.RowsOf(keys);
  PackRows(shape, query, first, count, shape.scale, t.query);
  PackRows(shape, d_out, first, count, 1.0f, t.d_out);
  std::fill(t.scores, t.scores + count * kTile, 0.0f);
  std::fill(t.d_scores, t.d_scores + count * kTile, 0.0f);
  const size_t across = keys * shape.width * kTile;
  AddProduct(count, kTile, shape.width, {t.query, shape.padded, 1}, t.keys_across + across, kTile,
             t.scores, kTile);
  AddProduct(count, kTile, shape.width, {t.d_out, shape.padded, 1}, t.values_across + across, kTile,
             t.d_scores, kTile);
  for (size_t i = 0; i < count; ++i) {
    ExpRow(t.scores + i * kTile, VisibleKeys(queries, keys, i), Set(lse[first + i]));
  }
  ScoreGradient(count, row_products + first, t.scores, t.d_scores);
  AddProduct(key_count, shape.padded, count, {t.scores, 1, kTile}, t.d_out, shape.padded, t.d_value,
             shape.padded);
  AddProduct(key_count, shape.padded, count, {t.d_scores, 1, kTile}, t.query, shape.padded, t.d_key,
             shape.padded);
  AddProduct(count, shape.padded, key_count, {t.d_scores, kTile, 1},
             t.keys + keys * kTile * shape.padded, shape.padded, d_query + first * shape.padded,
             shape.padded);
}

template <class T>
void GroupGradient(const AttentionArguments& a, const AttentionGradients& g, int64_t batch,
                   int64_t kv_head) {
  const Shape shape(a);
  const int64_t group = a.heads / a.kv_heads;
  const int64_t first_head = kv_head * group;
  thread_local Scratch scratch;
  const BackwardTiles t = TakeTiles(shape, static_cast<size_t>(group), scratch);

  const auto in = [&](const void* tensor, int64_t heads, int64_t head) {
    return HeadOf(static_cast<const T*>(tensor), a, heads, batch, head);
  };
  PackRows(shape, in(a.k, a.kv_heads, kv_head), 0, shape.rows, 1.0f, t.keys);
  PackColumns(shape, in(a.k, a.kv_heads, kv_head), t.keys_across);
  PackColumns(shape, in(a.v, a.kv_heads, kv_head), t.values_across);
  const size_t d_query_size = shape.rows * shape.padded;
  std::fill(t.d_query, t.d_query + static_cast<size_t>(group) * d_query_size, 0.0f);
  for (int64_t i = 0; i < group; ++i) {
    RowProducts(shape, in(g.d_out, a.heads, first_head + i), in(g.out, a.heads, first_head + i),
                t.row_products + static_cast<size_t>(i) * shape.rows);
  }

  for (size_t keys = 0; keys < shape.tiles; ++keys) {
    std::fill(t.d_key, t.d_key + kTile * shape.padded, 0.0f);
    std::fill(t.d_value, t.d_value + kTile * shape.padded, 0.0f);
    for (int64_t i = 0; i < group; ++i) {
      const int64_t head = first_head + i;
      for (size_t queries = keys; queries < shape.tiles; ++queries) {
        AddTilePair(shape, t, in(a.q, a.heads, head), in(g.d_out, a.heads, head),
                    g.lse + (batch * a.heads + head) * a.sequence,
                    t.row_products + static_cast<size_t>(i) * shape.rows,
                    t.d_query + static_cast<size_t>(i) * d_query_size, queries, keys);
      }
    }
    const auto out = [&](void* tensor) {
      return HeadOf(static_cast<T*>(tensor), a, a.kv_heads, batch, kv_head);
    };
    UnpackRows(shape, t.d_key, 1.0f, out(g.d_k), keys * kTile, shape.RowsOf(keys));
    UnpackRows(shape, t.d_value, 1.0f, out(g.d_v), keys * kTile, shape.RowsOf(keys));
  }
  for (int64_t i = 0; i < group; ++i) {
    UnpackRows(shape, t.d_query + static_cast<size_t>(i) * d_query_size, shape.scale,
               HeadOf(static_cast<T*>(g.d_q), a, a.heads, batch, first_head + i), 0, shape.rows);
  }
}

void RunAttentionGradient(const AttentionArguments& arguments, const AttentionGradients& gradients,
                          int64_t begin, int64_t end) {
  WithElement(arguments.dtype, [=, &arguments, &gradients](auto* t) {
    for (int64_t i = begin; i < end; ++i) {
      GroupGradient<std::remove_pointer_t<decltype(t)>>(
          arguments, gradients, i / arguments.kv_heads, i % arguments.kv_heads);
    }
  });
}

}  // namespace zero::llama::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::llama {

HWY_EXPORT(RunAttentionGradient);

absl::Status AttentionBackward(const Stream& stream, const AttentionArguments& arguments,
                               const AttentionGradients& gradients) {
  if (absl::Status status = CheckAttention("AttentionBackward", arguments); !status.ok()) {
    return status;
  }
  if (OnCuda(stream)) return cuda::AttentionBackward(stream, arguments, gradients);
  return EnqueueLoop(stream, "attention backward", arguments.batch * arguments.kv_heads, 1,
                     [=](int64_t begin, int64_t end) {
                       HWY_DYNAMIC_DISPATCH(RunAttentionGradient)(arguments, gradients, begin, end);
                     });
}

}  // namespace zero::llama
#endif  // HWY_ONCE
