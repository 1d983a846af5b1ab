// The operations of ops.h on CUDA streams. Arguments have been checked; sizes may be 0. No float is
// added atomically: equal inputs give equal bits.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "device/dtype.h"
#include "device/stream.h"
#include "examples/llama/ops.h"
#include "examples/llama/product.h"

namespace zero::llama::cuda {

// The ids travel as arguments of kernels: nothing is staged, and the host waits for nothing.
absl::Status LoadIds(const Stream& stream, absl::Span<const int32_t> host, int32_t* device);

// By a plain kernel of tiles in shared memory. `threads` means nothing here.
absl::Status TiledProduct(const Stream& stream, const Product& product);

absl::Status EmbeddingForward(const Stream& stream, const EmbeddingArguments& arguments,
                              const void* table, void* out);
absl::Status EmbeddingBackward(const Stream& stream, const EmbeddingArguments& arguments,
                               const void* d_out, void* d_table, bool accumulate);

absl::Status RmsNormForward(const Stream& stream, const RmsNormArguments& arguments, const void* x,
                            const void* w, void* y, float* r);
absl::Status RmsNormBackward(const Stream& stream, const RmsNormArguments& arguments,
                             const RmsNormGradients& gradients);

absl::Status Rotary(const Stream& stream, const RotaryArguments& arguments, void* x);

absl::Status AttentionForward(const Stream& stream, const AttentionArguments& arguments, void* out,
                              float* lse);
absl::Status AttentionBackward(const Stream& stream, const AttentionArguments& arguments,
                               const AttentionGradients& gradients);

absl::Status SwiGluForward(const Stream& stream, DType dtype, int64_t n, const void* gate,
                           const void* up, void* out);
absl::Status SwiGluBackward(const Stream& stream, DType dtype, int64_t n, const void* gate,
                            const void* up, const void* d_out, void* d_gate, void* d_up);
absl::Status AddResidual(const Stream& stream, DType dtype, int64_t n, const void* a, const void* b,
                         void* sum);

absl::Status CrossEntropyForward(const Stream& stream, const CrossEntropyArguments& arguments,
                                 float* losses, float* lse);
absl::Status CrossEntropyBackward(const Stream& stream, const CrossEntropyArguments& arguments,
                                  const float* lse, const float* scale, float factor, DType dtype,
                                  void* d_logits);
absl::Status SumLosses(const Stream& stream, int64_t rows, const float* losses,
                       const int32_t* targets, LossSum* sum);

}  // namespace zero::llama::cuda
