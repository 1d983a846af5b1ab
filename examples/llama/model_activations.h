// The memory of a LlamaModel, and its products. For model*.cc only.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "device/dtype.h"
#include "examples/llama/model.h"
#include "examples/llama/ops.h"

namespace zero::llama {

// Hands out pieces of a block, each 64-byte aligned; without a block it only counts them.
class Carver {
 public:
  explicit Carver(void* block) : block_(static_cast<char*>(block)) {}
  template <class T = void>
  T* Take(int64_t elements, int64_t element_bytes) {
    char* piece = block_ != nullptr ? block_ + used_ : nullptr;
    constexpr int64_t kAlignment = 64;
    used_ += (elements * element_bytes + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(piece);
  }
  float* TakeFloats(int64_t elements) { return Take<float>(elements, sizeof(float)); }
  int64_t used() const { return used_; }

 private:
  char* const block_;
  int64_t used_ = 0;
};

// N = B * T tokens; T: the working dtype. What a layer keeps for its backward.
struct LayerActivations {
  float* input_r;      // [N], of the norm before attention
  void* input_norm;    // [N, hidden] T
  void *query, *key;   // [N, query_size], [N, key_value_size] T, after rotation
  void* value;         // [N, key_value_size] T
  void* attention;     // [N, query_size] T
  float* log_sum_exp;  // [B, heads, T]
  void* middle;        // [N, hidden] T, the residual stream between the two halves
  float* middle_r;     // [N]
  void* middle_norm;   // [N, hidden] T
  void *gate, *up;     // [N, intermediate] T
};

struct LlamaModel::Activations {
  Activations(const LlamaConfig& config, const Options& options, Carver& carver);

  void* stream_at(int64_t layer) const { return streams[layer % streams.size()]; }
  LayerActivations& layer(int64_t i) { return layers[i % layers.size()]; }

  void* product_workspace;
  float *rope_cos, *rope_sin;  // [T, head_dim / 2]
  int32_t *tokens, *targets;   // [N]

  std::vector<void*> streams;  // [N, hidden] T: what goes into layer i, at last into the head
  std::vector<LayerActivations> layers;
  void* product;  // [N, intermediate] T, silu(gate) up

  void* last_rows;      // [B, hidden] T
  float* final_r;       // [N]
  void* final_norm;     // [N, hidden] T
  int64_t logit_rows;   // of one piece
  float* logits;        // [logit_rows, vocab]
  float *losses, *lse;  // [N]

  // Backward only.
  void* d_logits;               // [logit_rows, vocab] T
  void* d_stream;               // [N, hidden] T
  float* d_norm;                // [N, hidden]
  void *d_gate, *d_up;          // [N, intermediate] T
  void *d_attention, *d_query;  // [N, query_size] T
  void *d_key, *d_value;        // [N, key_value_size] T
};

// The three products of a linear map y = x W' with W [out, in], for `rows` rows.
struct Linear {
  const Stream& stream;
  DType dtype;
  int threads;             // on the host
  CudaProducts* products;  // on a CUDA device
  int64_t rows, out, in;

  // y [rows, out] = x W' + addend.
  absl::Status Forward(const void* x, const void* w, void* y, DType y_type,
                       const void* addend = nullptr) const {
    MatMulArguments p = Common(rows, out, in, x, w);
    p.transpose_b = true;
    p.c = y;
    p.out_type = y_type;
    p.addend = addend;
    return MatMul(stream, p);
  }
  // dx [rows, in] = dy W + addend.
  absl::Status InputGradient(const void* dy, const void* w, void* dx, DType dx_type,
                             const void* addend = nullptr) const {
    MatMulArguments p = Common(rows, in, out, dy, w);
    p.c = dx;
    p.out_type = dx_type;
    p.addend = addend;
    return MatMul(stream, p);
  }
  // dw [out, in] = dy' x, or added to it. Null dw: not wanted.
  absl::Status WeightGradient(const void* dy, const void* x, void* dw, bool accumulate) const {
    if (dw == nullptr) return absl::OkStatus();
    MatMulArguments p = Common(out, in, rows, dy, x);
    p.transpose_a = true;
    p.c = dw;
    p.out_type = dtype;
    p.addend = accumulate ? dw : nullptr;
    return MatMul(stream, p);
  }

 private:
  MatMulArguments Common(int64_t m, int64_t n, int64_t k, const void* a, const void* b) const {
    MatMulArguments p;
    p.m = m;
    p.n = n;
    p.k = k;
    p.a = a;
    p.b = b;
    p.in_type = dtype;
    p.threads = threads;
    p.products = products;
    return p;
  }
};

// Whether `given` pointers came for a unit of `expected` parameters.
inline absl::Status CheckCount(const char* what, size_t given, int64_t expected) {
  if (static_cast<int64_t>(given) == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("LlamaModel: ", given, " pointers for the ", what,
                                                 ", which has ", expected, " parameters"));
}

}  // namespace zero::llama
