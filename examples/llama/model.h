// Forward and backward of a LLaMA model, one unit at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "device/buffer.h"
#include "device/device.h"
#include "device/stream.h"
#include "examples/llama/config.h"
#include "examples/llama/cuda_products.h"
#include "examples/llama/ops.h"

namespace zero::llama {

struct Linear;

// data[i]: parameter i of a unit, in the order of model_description.h, in the working dtype.
using UnitWeights = absl::Span<const void* const>;

// data[i]: where the gradient of parameter i goes; null: not wanted.
struct UnitGradients {
  absl::Span<void* const> data;
  bool accumulate = false;  // add to what is there
};

// One rank's activations and the functions that fill them. Driven by one thread; every function
// enqueues on `stream` and returns, and the pointers in its spans must stay valid until the stream
// has run it. Order of a training pass: LoadBatch, ForwardEmbedding, ForwardLayer(0 ... L-1),
// ForwardHead, BackwardHead, BackwardLayer(L-1 ... 0), BackwardEmbedding. Nothing is computed twice
// in backward but attention scores, the SwiGLU product and, for large vocabularies, the logits.
//
// A tied head has no matrix of its own: pass the embedding's pointers as `tied`, else leave it
// empty. BackwardHead then writes (or adds) the head's part of that gradient and BackwardEmbedding
// the rest, so that the second of the two must say accumulate.
class LlamaModel {
 public:
  struct Options {
    int64_t micro_batch = 1;      // B, rows
    int64_t sequence_length = 0;  // T, tokens of a row; at most max_position_embeddings
    DType dtype = DType::kBF16;   // of weights, gradients and activations
    // What the loss is multiplied by in backward, beside the loss scale: about 1 / (B * T) keeps
    // gradients in the range of fp16.
    float loss_factor = 1;
    bool training = true;     // false: no backward; all layers share one layer's memory
    int product_threads = 1;  // threads of one matrix product on the host
    // Bytes for fp32 logits. Where B * T rows of them need more, they are computed in pieces,
    // twice.
    int64_t logits_bytes = int64_t{256} << 20;
    // Bytes that products on a CUDA device may use meanwhile; part of the activations.
    int64_t product_workspace_bytes = 0;
  };

  // Allocates all activations from `device`, which must outlive the model, and host memory for the
  // rotary table, HostBytes of kHostStaging. kInvalidArgument names the option; kResourceExhausted:
  // nothing stays allocated.
  static absl::StatusOr<std::unique_ptr<LlamaModel>> Create(const LlamaConfig& config,
                                                            const Options& options, Device* device);
  ~LlamaModel();

  const LlamaConfig& config() const { return config_; }
  const Options& options() const { return options_; }
  int64_t tokens() const { return options_.micro_batch * options_.sequence_length; }
  // Bytes that Create allocates for these.
  static int64_t ActivationBytes(const LlamaConfig& config, const Options& options);
  static int64_t HostBytes(const LlamaConfig& config, const Options& options);

  // Both [B * T], row after row; free to change when this returns. A negative target is ignored.
  // `targets` may be empty where no loss is wanted. kInvalidArgument names the first id that is not
  // in the vocabulary, its row and position; nothing is enqueued.
  absl::Status LoadBatch(const Stream& stream, absl::Span<const int32_t> tokens,
                         absl::Span<const int32_t> targets);

  absl::Status ForwardEmbedding(const Stream& stream, UnitWeights weights);
  absl::Status ForwardLayer(const Stream& stream, int64_t layer, UnitWeights weights);
  // *loss (device memory) is overwritten.
  absl::Status ForwardHead(const Stream& stream, UnitWeights weights, UnitWeights tied,
                           LossSum* loss);
  // In place of ForwardHead: logits [B, vocab] fp32, device memory, of token `position` (0 ... T-1)
  // of each row.
  absl::Status ForwardLogits(const Stream& stream, UnitWeights weights, UnitWeights tied,
                             int64_t position, float* logits);

  // Starts from d(sum of the token losses) * (*loss_scale); `loss_scale` in device memory, null: 1.
  // Follows ForwardHead directly.
  absl::Status BackwardHead(const Stream& stream, UnitWeights weights, UnitGradients gradients,
                            UnitWeights tied, UnitGradients tied_gradients,
                            const float* loss_scale);
  absl::Status BackwardLayer(const Stream& stream, int64_t layer, UnitWeights weights,
                             UnitGradients gradients);
  absl::Status BackwardEmbedding(const Stream& stream, UnitGradients gradients);

 private:
  struct Activations;

  LlamaModel(const LlamaConfig& config, const Options& options, Buffer memory, Buffer rope);

  // The map of `rows` rows of `in` elements to rows of `out`.
  Linear MakeLinear(const Stream& stream, int64_t rows, int64_t out, int64_t in) const;
  RmsNormArguments Norm(int64_t rows) const;
  AttentionArguments Attention(int64_t layer) const;
  absl::Status RotateHeads(const Stream& stream, int64_t heads, bool backward, void* x) const;
  // Rows [first, first + rows) of the logits.
  absl::Status Logits(const Stream& stream, const void* matrix, int64_t first, int64_t rows) const;
  absl::Status BackwardMlp(const Stream& stream, int64_t layer, UnitWeights weights,
                           UnitGradients gradients);
  absl::Status BackwardAttention(const Stream& stream, int64_t layer, UnitWeights weights,
                                 UnitGradients gradients);

  const LlamaConfig config_;
  const Options options_;
  const Buffer memory_;
  const Buffer rope_;  // host memory: cos, then sin
  const std::unique_ptr<Activations> activations_;
  std::unique_ptr<CudaProducts> products_;  // null on the host
  bool rope_loaded_ = false;
};

}  // namespace zero::llama
