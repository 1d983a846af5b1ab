// The operations that a LLaMA model is made of.
//
// Each function enqueues one operation on `stream` and returns; all memory it names is device
// memory and must live until the stream has run it. Matrices are row-major without gaps. `dtype` is
// what the comments call T; arithmetic is fp32 whatever T is. An output may be an input where that
// is said. Results do not depend on the number of threads. Errors: a size or a pair of dtypes that
// is not supported is kInvalidArgument, with nothing enqueued. On a CUDA device sums are
// in another order than on the host, and heads have at most 256 elements.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "device/dtype.h"
#include "device/stream.h"

namespace zero::llama {

class CudaProducts;

// device[i] = host[i]. `host` may change as soon as this returns.
absl::Status LoadIds(const Stream& stream, absl::Span<const int32_t> host, int32_t* device);

// C = A B + addend, with A [m, k], B [k, n], C [m, n]. Sums are fp32, rounded once.
struct MatMulArguments {
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;  // [m, k], or [k, m] if transpose_a
  const void* b = nullptr;  // [k, n], or [n, k] if transpose_b
  bool transpose_a = false;
  bool transpose_b = false;
  DType in_type = DType::kF32;
  void* c = nullptr;
  DType out_type = DType::kF32;  // kF32, or in_type
  const void* addend = nullptr;  // [m, n] of out_type; may be c; null: 0
  int threads = 1;               // host only: threads that share the product out
  // CUDA only: does the product; null: a plain kernel.
  CudaProducts* products = nullptr;
};
absl::Status MatMul(const Stream& stream, const MatMulArguments& arguments);

// out[t] = table[ids[t]]; table [vocab, width] T, out [tokens, width] T. 0 <= ids[t] < vocab.
struct EmbeddingArguments {
  int64_t tokens = 0, vocab = 0, width = 0;
  DType dtype = DType::kF32;
  const int32_t* ids = nullptr;
};
absl::Status EmbeddingForward(const Stream& stream, const EmbeddingArguments& arguments,
                              const void* table, void* out);
// d_table[v] = sum of d_out[t] over ids[t] == v, in fp32 in order of t, rounded once; added to
// d_table if `accumulate`.
absl::Status EmbeddingBackward(const Stream& stream, const EmbeddingArguments& arguments,
                               const void* d_out, void* d_table, bool accumulate);

// RMSNorm (Zhang and Sennrich, arXiv 1910.07467): r = 1 / sqrt(mean(x^2) + epsilon) of each row,
// y = x r w. x, y [rows, width] T; w [width] T; r [rows] fp32 is kept for backward.
struct RmsNormArguments {
  int64_t rows = 0, width = 0;
  DType dtype = DType::kF32;
  float epsilon = 1e-6f;
};
absl::Status RmsNormForward(const Stream& stream, const RmsNormArguments& arguments, const void* x,
                            const void* w, void* y, float* r);
// With h = dy w of a row and m = mean(h x): dx = residual + r h - x r^3 m; dw = sum of dy x r over
// rows, added to dw if `accumulate`. dy [rows, width] fp32. `residual` (the gradient that passes
// the norm by) may be null, and dx may be residual. dw may be null: not wanted.
struct RmsNormGradients {
  const float* dy = nullptr;
  const void* x = nullptr;
  const void* w = nullptr;
  const float* r = nullptr;
  const void* residual = nullptr;
  void* dx = nullptr;
  void* dw = nullptr;
  bool accumulate = false;
};
absl::Status RmsNormBackward(const Stream& stream, const RmsNormArguments& arguments,
                             const RmsNormGradients& gradients);

// Rotary embedding (Su et al., arXiv 2104.09864) in place, elements i and i + d/2 of a head of
// width d being a pair: (x, y) -> (x cos - y sin, y cos + x sin). Row t is at position t %
// sequence. `backward` turns the other way. cos, sin [sequence, d/2] fp32.
struct RotaryArguments {
  int64_t tokens = 0, sequence = 0, heads = 0, head_dim = 0;
  DType dtype = DType::kF32;
  const float* cos = nullptr;
  const float* sin = nullptr;
  bool backward = false;
};
absl::Status Rotary(const Stream& stream, const RotaryArguments& arguments, void* x);

// Causal attention, query head h reading key-value head h / (heads / kv_heads):
// out = softmax(q k' / sqrt(head_dim)) v over keys at or before the query. Tiles with an online
// softmax (Dao, arXiv 2307.08691): only lse, the log of each row's sum of exp, is kept.
// q, out [batch * sequence, heads * head_dim] T; k, v [batch * sequence, kv_heads * head_dim] T;
// lse [batch, heads, sequence] fp32.
struct AttentionArguments {
  int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  DType dtype = DType::kF32;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
};
absl::Status AttentionForward(const Stream& stream, const AttentionArguments& arguments, void* out,
                              float* lse);
// d_q like q, d_k and d_v like k, all overwritten; the scores are computed again, tile by tile.
struct AttentionGradients {
  const void* out = nullptr;
  const float* lse = nullptr;
  const void* d_out = nullptr;
  void* d_q = nullptr;
  void* d_k = nullptr;
  void* d_v = nullptr;
};
absl::Status AttentionBackward(const Stream& stream, const AttentionArguments& arguments,
                               const AttentionGradients& gradients);

// out = silu(gate) up, silu(x) = x / (1 + exp(-x)) (Shazeer, arXiv 2002.05202). n elements of T.
absl::Status SwiGluForward(const Stream& stream, DType dtype, int64_t n, const void* gate,
                           const void* up, void* out);
// d_gate = d_out up silu'(gate), d_up = d_out silu(gate). d_up may be d_out.
absl::Status SwiGluBackward(const Stream& stream, DType dtype, int64_t n, const void* gate,
                            const void* up, const void* d_out, void* d_gate, void* d_up);

// sum[i] = a[i] + b[i]; n elements of T. sum may be a or b.
absl::Status AddResidual(const Stream& stream, DType dtype, int64_t n, const void* a, const void* b,
                         void* sum);

// Cross-entropy of each row: lse = log of the sum of exp(logits), loss = lse - logits[target]. Rows
// whose target is negative are ignored: their loss is 0. logits [rows, vocab] fp32; targets,
// losses, lse [rows]; losses and lse fp32.
struct CrossEntropyArguments {
  int64_t rows = 0, vocab = 0;
  const float* logits = nullptr;
  const int32_t* targets = nullptr;
};
absl::Status CrossEntropyForward(const Stream& stream, const CrossEntropyArguments& arguments,
                                 float* losses, float* lse);
// d_logits = (exp(logits - lse) - [column is target]) * (*scale) * factor; 0 in ignored rows.
// d_logits [rows, vocab] T; may be logits where T is fp32. `scale` is read when the stream gets
// here; null: 1.
absl::Status CrossEntropyBackward(const Stream& stream, const CrossEntropyArguments& arguments,
                                  const float* lse, const float* scale, float factor, DType dtype,
                                  void* d_logits);

// What the losses of a micro-batch come to.
struct LossSum {
  double loss = 0;     // sum over the valid tokens
  int64_t tokens = 0;  // valid ones: their target is not negative
};
// *sum = {sum of losses in double in order, count of targets >= 0}.
absl::Status SumLosses(const Stream& stream, int64_t rows, const float* losses,
                       const int32_t* targets, LossSum* sum);

}  // namespace zero::llama
