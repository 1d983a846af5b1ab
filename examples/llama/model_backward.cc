#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "examples/llama/model.h"
#include "examples/llama/model_activations.h"
#include "examples/llama/model_description.h"

namespace zero::llama {
namespace {

absl::Status CheckTraining(const LlamaModel::Options& options) {
  if (options.training) return absl::OkStatus();
  return absl::FailedPreconditionError("LlamaModel: backward of a model made with training false");
}

}  // namespace

absl::Status LlamaModel::BackwardHead(const Stream& stream, UnitWeights weights,
                                      UnitGradients gradients, UnitWeights tied,
                                      UnitGradients tied_gradients, const float* loss_scale) {
  ZERO_RETURN_IF_ERROR(CheckTraining(options_));
  const bool is_tied = config_.tie_word_embeddings;
  const int64_t count = is_tied ? 1 : 2, tied_count = is_tied ? 1 : 0;
  ZERO_RETURN_IF_ERROR(CheckCount("head", weights.size(), count));
  ZERO_RETURN_IF_ERROR(CheckCount("head", gradients.data.size(), count));
  ZERO_RETURN_IF_ERROR(CheckCount("tied embedding", tied.size(), tied_count));
  ZERO_RETURN_IF_ERROR(CheckCount("tied embedding", tied_gradients.data.size(), tied_count));
  const void* matrix = is_tied ? tied[kEmbedTokens] : weights[kLmHead];
  void* d_matrix = is_tied ? tied_gradients.data[kEmbedTokens] : gradients.data[kLmHead];
  const bool accumulate = is_tied ? tied_gradients.accumulate : gradients.accumulate;

  Activations& a = *activations_;
  const int64_t hidden = config_.hidden_size;
  for (int64_t first = 0; first < tokens(); first += a.logit_rows) {
    const int64_t rows = std::min(a.logit_rows, tokens() - first);
    // One piece: ForwardHead has left it there.
    if (a.logit_rows < tokens()) ZERO_RETURN_IF_ERROR(Logits(stream, matrix, first, rows));
    ZERO_RETURN_IF_ERROR(CrossEntropyBackward(
        stream, {rows, config_.vocab_size, a.logits, a.targets + first}, a.lse + first, loss_scale,
        options_.loss_factor, options_.dtype, a.d_logits));
    const Linear linear = MakeLinear(stream, rows, config_.vocab_size, hidden);
    const char* norm =
        static_cast<const char*>(a.final_norm) + first * hidden * SizeOf(options_.dtype);
    ZERO_RETURN_IF_ERROR(
        linear.WeightGradient(a.d_logits, norm, d_matrix, accumulate || first > 0));
    ZERO_RETURN_IF_ERROR(
        linear.InputGradient(a.d_logits, matrix, a.d_norm + first * hidden, DType::kF32));
  }
  return RmsNormBackward(
      stream, Norm(tokens()),
      {a.d_norm, a.stream_at(config_.num_hidden_layers), weights[kFinalNorm], a.final_r, nullptr,
       a.d_stream, gradients.data[kFinalNorm], gradients.accumulate});
}

absl::Status LlamaModel::BackwardMlp(const Stream& stream, int64_t layer, UnitWeights weights,
                                     UnitGradients gradients) {
  Activations& a = *activations_;
  const LayerActivations& l = a.layer(layer);
  const DType dtype = options_.dtype;
  const int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
  const bool accumulate = gradients.accumulate;
  const Linear down = MakeLinear(stream, tokens(), hidden, inner);
  const Linear widen = MakeLinear(stream, tokens(), inner, hidden);

  ZERO_RETURN_IF_ERROR(SwiGluForward(stream, dtype, tokens() * inner, l.gate, l.up, a.product));
  ZERO_RETURN_IF_ERROR(
      down.WeightGradient(a.d_stream, a.product, gradients.data[kDown], accumulate));
  ZERO_RETURN_IF_ERROR(down.InputGradient(a.d_stream, weights[kDown], a.d_up, dtype));
  ZERO_RETURN_IF_ERROR(
      SwiGluBackward(stream, dtype, tokens() * inner, l.gate, l.up, a.d_up, a.d_gate, a.d_up));
  ZERO_RETURN_IF_ERROR(
      widen.WeightGradient(a.d_gate, l.middle_norm, gradients.data[kGate], accumulate));
  ZERO_RETURN_IF_ERROR(
      widen.WeightGradient(a.d_up, l.middle_norm, gradients.data[kUp], accumulate));
  ZERO_RETURN_IF_ERROR(widen.InputGradient(a.d_gate, weights[kGate], a.d_norm, DType::kF32));
  ZERO_RETURN_IF_ERROR(widen.InputGradient(a.d_up, weights[kUp], a.d_norm, DType::kF32, a.d_norm));
  return RmsNormBackward(stream, Norm(tokens()),
                         {a.d_norm, l.middle, weights[kPostAttentionNorm], l.middle_r, a.d_stream,
                          a.d_stream, gradients.data[kPostAttentionNorm], accumulate});
}

absl::Status LlamaModel::BackwardAttention(const Stream& stream, int64_t layer, UnitWeights weights,
                                           UnitGradients gradients) {
  Activations& a = *activations_;
  const LayerActivations& l = a.layer(layer);
  const DType dtype = options_.dtype;
  const int64_t hidden = config_.hidden_size;
  const bool accumulate = gradients.accumulate;
  const auto linear = [&](int64_t out, int64_t in) {
    return MakeLinear(stream, tokens(), out, in);
  };
  const Linear output = linear(hidden, config_.query_size());
  const Linear query = linear(config_.query_size(), hidden);
  const Linear key_value = linear(config_.key_value_size(), hidden);

  ZERO_RETURN_IF_ERROR(
      output.WeightGradient(a.d_stream, l.attention, gradients.data[kOutput], accumulate));
  ZERO_RETURN_IF_ERROR(output.InputGradient(a.d_stream, weights[kOutput], a.d_attention, dtype));
  ZERO_RETURN_IF_ERROR(AttentionBackward(
      stream, Attention(layer),
      {l.attention, l.log_sum_exp, a.d_attention, a.d_query, a.d_key, a.d_value}));
  ZERO_RETURN_IF_ERROR(RotateHeads(stream, config_.num_attention_heads, true, a.d_query));
  ZERO_RETURN_IF_ERROR(RotateHeads(stream, config_.num_key_value_heads, true, a.d_key));
  ZERO_RETURN_IF_ERROR(
      query.WeightGradient(a.d_query, l.input_norm, gradients.data[kQuery], accumulate));
  ZERO_RETURN_IF_ERROR(
      key_value.WeightGradient(a.d_key, l.input_norm, gradients.data[kKey], accumulate));
  ZERO_RETURN_IF_ERROR(
      key_value.WeightGradient(a.d_value, l.input_norm, gradients.data[kValue], accumulate));
  ZERO_RETURN_IF_ERROR(query.InputGradient(a.d_query, weights[kQuery], a.d_norm, DType::kF32));
  ZERO_RETURN_IF_ERROR(
      key_value.InputGradient(a.d_key, weights[kKey], a.d_norm, DType::kF32, a.d_norm));
  ZERO_RETURN_IF_ERROR(
      key_value.InputGradient(a.d_value, weights[kValue], a.d_norm, DType::kF32, a.d_norm));
  return RmsNormBackward(stream, Norm(tokens()),
                         {a.d_norm, a.stream_at(layer), weights[kInputNorm], l.input_r, a.d_stream,
                          a.d_stream, gradients.data[kInputNorm], accumulate});
}

absl::Status LlamaModel::BackwardLayer(const Stream& stream, int64_t layer, UnitWeights weights,
                                       UnitGradients gradients) {
  ZERO_RETURN_IF_ERROR(CheckTraining(options_));
  ZERO_RETURN_IF_ERROR(CheckCount("layer", weights.size(), kLayerParameters));
  ZERO_RETURN_IF_ERROR(CheckCount("layer", gradients.data.size(), kLayerParameters));
  ZERO_RETURN_IF_ERROR(BackwardMlp(stream, layer, weights, gradients));
  return BackwardAttention(stream, layer, weights, gradients);
}

absl::Status LlamaModel::BackwardEmbedding(const Stream& stream, UnitGradients gradients) {
  ZERO_RETURN_IF_ERROR(CheckTraining(options_));
  ZERO_RETURN_IF_ERROR(CheckCount("embedding", gradients.data.size(), 1));
  if (gradients.data[kEmbedTokens] == nullptr) return absl::OkStatus();
  return EmbeddingBackward(
      stream,
      {tokens(), config_.vocab_size, config_.hidden_size, options_.dtype, activations_->tokens},
      activations_->d_stream, gradients.data[kEmbedTokens], gradients.accumulate);
}

}  // namespace zero::llama
