// Causal attention, forward.
#include <limits>

#include "examples/llama/cuda_ops.h"
#include "examples/llama/host_op.h"
#include "examples/llama/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "examples/llama/ops_attention.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "examples/llama/attention-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zero::llama::HWY_NAMESPACE {

// One row of the online softmax: turns scores into exp(score - maximum) and rescales what was
// summed with an older maximum.
HWY_INLINE void SoftmaxRow(float* scores, size_t visible, float* out, size_t width, float& maximum,
                           float& sum) {
  const FloatTag d;
  const size_t lanes = Lanes();
  Vec top = Set(maximum);
  size_t i = 0;
  for (; i + lanes <= visible; i += lanes) top = hn::Max(Load(scores + i), top);
  if (i < visible) {
    top = hn::Max(hn::IfThenElse(hn::FirstN(d, visible - i), Load(scores + i), top), top);
  }
  const float before = maximum;
  maximum = MaxLanes(top);
  const float part = SumLanes(ExpRow(scores, visible, Set(maximum)));
  if (before == maximum) {
    sum += part;
    return;
  }
  const float shrink = std::exp(before - maximum);
  sum = sum * shrink + part;
  const Vec factor = Set(shrink);
  for (size_t j = 0; j < width; j += lanes) Store(hn::Mul(Load(out + j), factor), out + j);
}

// Tiles that a thread works on.
struct ForwardTiles {
  float* keys;    // [tiles][width][kTile]
  float* values;  // [rows, padded]
  float* query;   // [kTile, padded]
  float* scores;  // [kTile, kTile]
  float* out;     // [kTile, padded]
};

// One tile of queries of one head against all keys before it.
template <class T>
void AttendTile(const Shape& shape, const ForwardTiles& t, Head<const T> query, size_t tile,
                Head<T> out, float* lse) {
  const size_t count = shape.RowsOf(tile);
  PackRows(shape, query, tile * kTile, count, shape.scale, t.query);
  std::fill(t.out, t.out + count * shape.padded, 0.0f);
  float maximum[kTile], sum[kTile] = {};
  std::fill(maximum, maximum + kTile, -std::numeric_limits<float>::infinity());
  for (size_t keys = 0; keys <= tile; ++keys) {
    std::fill(t.scores, t.scores + count * kTile, 0.0f);
    AddProduct(count, kTile, shape.width, {t.query, shape.padded, 1},
               t.keys + keys * shape.width * kTile, kTile, t.scores, kTile);
    for (size_t i = 0; i < count; ++i) {
      SoftmaxRow(t.scores + i * kTile, VisibleKeys(tile, keys, i), t.out + i * shape.padded,
                 shape.padded, maximum[i], sum[i]);
    }
    AddProduct(count, shape.padded, shape.RowsOf(keys), {t.scores, kTile, 1},
               t.values + keys * kTile * shape.padded, shape.padded, t.out, shape.padded);
  }
  for (size_t i = 0; i < count; ++i) {
    UnpackRows(shape, t.out + i * shape.padded, 1.0f / sum[i], out, tile * kTile + i, 1);
    lse[tile * kTile + i] = maximum[i] + std::log(sum[i]);
  }
}

// The query heads that read one key-value head of one sequence.
template <class T>
void AttendGroup(const AttentionArguments& a, T* out, float* lse, int64_t batch, int64_t kv_head) {
  const Shape shape(a);
  thread_local Scratch scratch;
  const size_t row_tile = kTile * shape.padded;
  scratch.Reset(shape.tiles * kTile * (Scratch::RoundUp(shape.width) + shape.padded) +
                2 * row_tile + kTile * kTile);
  ForwardTiles t;
  t.keys = scratch.Take(shape.tiles * shape.width * kTile);
  t.values = scratch.Take(shape.rows * shape.padded);
  t.query = scratch.Take(row_tile);
  t.scores = scratch.Take(kTile * kTile);
  t.out = scratch.Take(row_tile);

  PackColumns(shape, HeadOf(static_cast<const T*>(a.k), a, a.kv_heads, batch, kv_head), t.keys);
  PackRows(shape, HeadOf(static_cast<const T*>(a.v), a, a.kv_heads, batch, kv_head), 0, shape.rows,
           1.0f, t.values);
  const int64_t group = a.heads / a.kv_heads;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const auto query = HeadOf(static_cast<const T*>(a.q), a, a.heads, batch, head);
    for (size_t tile = 0; tile < shape.tiles; ++tile) {
      AttendTile(shape, t, query, tile, HeadOf(out, a, a.heads, batch, head),
                 lse + (batch * a.heads + head) * a.sequence);
    }
  }
}

void RunAttention(const AttentionArguments& arguments, void* out, float* lse, int64_t begin,
                  int64_t end) {
  WithElement(arguments.dtype, [=, &arguments](auto* t) {
    for (int64_t i = begin; i < end; ++i) {
      AttendGroup(arguments, static_cast<decltype(t)>(out), lse, i / arguments.kv_heads,
                  i % arguments.kv_heads);
    }
  });
}

}  // namespace zero::llama::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::llama {

HWY_EXPORT(RunAttention);

absl::Status AttentionForward(const Stream& stream, const AttentionArguments& arguments, void* out,
                              float* lse) {
  if (absl::Status status = CheckAttention("AttentionForward", arguments); !status.ok()) {
    return status;
  }
  if (OnCuda(stream)) return cuda::AttentionForward(stream, arguments, out, lse);
  return EnqueueLoop(stream, "attention", arguments.batch * arguments.kv_heads, 1,
                     [=](int64_t begin, int64_t end) {
                       HWY_DYNAMIC_DISPATCH(RunAttention)(arguments, out, lse, begin, end);
                     });
}

}  // namespace zero::llama
#endif  // HWY_ONCE
