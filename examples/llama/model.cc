#include "examples/llama/model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "examples/llama/model_activations.h"
#include "examples/llama/model_description.h"
#include "examples/llama/rope.h"

namespace zero::llama {
namespace {

absl::Status CheckOptions(const LlamaConfig& config, const LlamaModel::Options& options) {
  const auto wrong = [](const std::string& why) {
    return absl::InvalidArgumentError("LlamaModel: " + why);
  };
  if (options.micro_batch < 1) {
    return wrong(absl::StrCat("micro_batch is ", options.micro_batch, "; it must be at least 1"));
  }
  if (options.sequence_length < 1 || options.sequence_length > config.max_position_embeddings) {
    return wrong(absl::StrCat("sequence_length is ", options.sequence_length,
                              "; it must be from 1 to max_position_embeddings (",
                              config.max_position_embeddings, ")"));
  }
  if (!(options.loss_factor > 0) || !std::isfinite(options.loss_factor)) {
    return wrong(absl::StrCat("loss_factor is ", options.loss_factor, "; it must be above 0"));
  }
  if (options.product_threads < 1) {
    return wrong(
        absl::StrCat("product_threads is ", options.product_threads, "; it must be at least 1"));
  }
  if (options.product_workspace_bytes < 0) {
    return wrong(absl::StrCat("product_workspace_bytes is ", options.product_workspace_bytes,
                              "; it must be at least 0"));
  }
  return absl::OkStatus();
}

// The first id that is out of range.
absl::Status CheckIds(const char* what, absl::Span<const int32_t> ids, int64_t vocab,
                      int64_t sequence, bool may_be_negative) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < vocab && (ids[i] >= 0 || may_be_negative)) continue;
    const auto at = static_cast<int64_t>(i);
    return absl::InvalidArgumentError(
        absl::StrCat(what, " ", ids[i], " in row ", at / sequence, " at position ", at % sequence,
                     " is not in the vocabulary: ids go from 0 to ", vocab - 1));
  }
  return absl::OkStatus();
}

// The matrix of the head: its own, or the embedding's.
absl::StatusOr<const void*> HeadMatrix(const LlamaConfig& config, UnitWeights weights,
                                       UnitWeights tied) {
  ZERO_RETURN_IF_ERROR(CheckCount("head", weights.size(), config.tie_word_embeddings ? 1 : 2));
  ZERO_RETURN_IF_ERROR(
      CheckCount("tied embedding", tied.size(), config.tie_word_embeddings ? 1 : 0));
  return config.tie_word_embeddings ? tied[kEmbedTokens] : weights[kLmHead];
}

}  // namespace

LlamaModel::Activations::Activations(const LlamaConfig& config, const Options& options,
                                     Carver& carver) {
  const int64_t n = options.micro_batch * options.sequence_length;
  const int64_t bytes = SizeOf(options.dtype);
  const auto take = [&](int64_t width) { return carver.Take(n * width, bytes); };
  const int64_t hidden = config.hidden_size;
  const int64_t layer_count = options.training ? config.num_hidden_layers : 1;

  // First, since libraries want it aligned as the whole block is.
  product_workspace = carver.Take(options.product_workspace_bytes, 1);
  rope_cos = carver.TakeFloats(options.sequence_length * config.head_dim / 2);
  rope_sin = carver.TakeFloats(options.sequence_length * config.head_dim / 2);
  tokens = carver.Take<int32_t>(n, sizeof(int32_t));
  targets = carver.Take<int32_t>(n, sizeof(int32_t));
  for (int64_t i = 0; i <= layer_count; ++i) streams.push_back(take(hidden));
  for (int64_t i = 0; i < layer_count; ++i) {
    LayerActivations layer;
    layer.input_r = carver.TakeFloats(n);
    layer.input_norm = take(hidden);
    layer.query = take(config.query_size());
    layer.key = take(config.key_value_size());
    layer.value = take(config.key_value_size());
    layer.attention = take(config.query_size());
    layer.log_sum_exp = carver.TakeFloats(n * config.num_attention_heads);
    layer.middle = take(hidden);
    layer.middle_r = carver.TakeFloats(n);
    layer.middle_norm = take(hidden);
    layer.gate = take(config.intermediate_size);
    layer.up = take(config.intermediate_size);
    layers.push_back(layer);
  }
  product = take(config.intermediate_size);
  last_rows = carver.Take(options.micro_batch * hidden, bytes);
  final_r = carver.TakeFloats(n);
  final_norm = take(hidden);
  const int64_t row_bytes = config.vocab_size * static_cast<int64_t>(sizeof(float));
  logit_rows = std::clamp<int64_t>(options.logits_bytes / row_bytes, 1, n);
  logits = carver.TakeFloats(logit_rows * config.vocab_size);
  losses = carver.TakeFloats(n);
  lse = carver.TakeFloats(n);
  if (!options.training) return;

  d_logits = options.dtype == DType::kF32 ? static_cast<void*>(logits)
                                          : carver.Take(logit_rows * config.vocab_size, bytes);
  d_stream = take(hidden);
  d_norm = carver.TakeFloats(n * hidden);
  d_gate = take(config.intermediate_size);
  d_up = take(config.intermediate_size);
  d_attention = take(config.query_size());
  d_query = take(config.query_size());
  d_key = take(config.key_value_size());
  d_value = take(config.key_value_size());
}

absl::StatusOr<std::unique_ptr<LlamaModel>> LlamaModel::Create(const LlamaConfig& config,
                                                               const Options& options,
                                                               Device* device) {
  LlamaConfig complete = config;
  ZERO_RETURN_IF_ERROR(CompleteConfig(complete));
  ZERO_RETURN_IF_ERROR(CheckOptions(complete, options));
  ZERO_ASSIGN_OR_RETURN(Buffer memory,
                        device->Allocate(ActivationBytes(complete, options),
                                         MemoryCategory::kActivations, "activations of the model"));
  ZERO_ASSIGN_OR_RETURN(
      Buffer rope, device->AllocateHost(HostBytes(complete, options), MemoryCategory::kHostStaging,
                                        "rotary table of the model"));
  std::unique_ptr<LlamaModel> model(
      new LlamaModel(complete, options, std::move(memory), std::move(rope)));
  if (device->kind() == DeviceKind::kCuda) {
    ZERO_ASSIGN_OR_RETURN(model->products_,
                          CudaProducts::Create(device, model->activations_->product_workspace,
                                               options.product_workspace_bytes));
  }
  return model;
}

int64_t LlamaModel::ActivationBytes(const LlamaConfig& config, const Options& options) {
  Carver carver(nullptr);
  const Activations activations(config, options, carver);
  return carver.used();
}

int64_t LlamaModel::HostBytes(const LlamaConfig& config, const Options& options) {
  return options.sequence_length * (config.head_dim / 2) * 2 * static_cast<int64_t>(sizeof(float));
}

LlamaModel::LlamaModel(const LlamaConfig& config, const Options& options, Buffer memory,
                       Buffer rope)
    : config_(config),
      options_(options),
      memory_(std::move(memory)),
      rope_(std::move(rope)),
      activations_([&] {
        Carver carver(memory_.data());
        return std::make_unique<Activations>(config, options, carver);
      }()) {
  const RopeTable table = MakeRopeTable(config, options.sequence_length);
  const size_t bytes = table.cos.size() * sizeof(float);
  if (bytes == 0) return;
  std::memcpy(rope_.data(), table.cos.data(), bytes);
  std::memcpy(rope_.bytes_at(static_cast<int64_t>(bytes)), table.sin.data(), bytes);
}

LlamaModel::~LlamaModel() = default;

Linear LlamaModel::MakeLinear(const Stream& stream, int64_t rows, int64_t out, int64_t in) const {
  return {stream, options_.dtype, options_.product_threads, products_.get(), rows, out, in};
}

RmsNormArguments LlamaModel::Norm(int64_t rows) const {
  return {rows, config_.hidden_size, options_.dtype, static_cast<float>(config_.rms_norm_eps)};
}

AttentionArguments LlamaModel::Attention(int64_t layer) const {
  const LayerActivations& a = activations_->layer(layer);
  return {options_.micro_batch,
          options_.sequence_length,
          config_.num_attention_heads,
          config_.num_key_value_heads,
          config_.head_dim,
          options_.dtype,
          a.query,
          a.key,
          a.value};
}

absl::Status LlamaModel::RotateHeads(const Stream& stream, int64_t heads, bool backward,
                                     void* x) const {
  return Rotary(stream,
                {tokens(), options_.sequence_length, heads, config_.head_dim, options_.dtype,
                 activations_->rope_cos, activations_->rope_sin, backward},
                x);
}

absl::Status LlamaModel::LoadBatch(const Stream& stream, absl::Span<const int32_t> tokens,
                                   absl::Span<const int32_t> targets) {
  const auto n = static_cast<size_t>(this->tokens());
  if (tokens.size() != n || (!targets.empty() && targets.size() != n)) {
    return absl::InvalidArgumentError(absl::StrCat("LlamaModel: a batch of ", tokens.size(),
                                                   " tokens and ", targets.size(), " targets for ",
                                                   n, " places"));
  }
  const int64_t sequence = options_.sequence_length;
  ZERO_RETURN_IF_ERROR(CheckIds("token", tokens, config_.vocab_size, sequence, false));
  ZERO_RETURN_IF_ERROR(CheckIds("target", targets, config_.vocab_size, sequence, true));
  if (!rope_loaded_) {
    Device& device = stream.device();
    const int64_t bytes = rope_.bytes() / 2;
    ZERO_RETURN_IF_ERROR(device.Copy(stream, activations_->rope_cos, rope_.data(), bytes));
    ZERO_RETURN_IF_ERROR(device.Copy(stream, activations_->rope_sin, rope_.bytes_at(bytes), bytes));
    rope_loaded_ = true;
  }
  ZERO_RETURN_IF_ERROR(LoadIds(stream, tokens, activations_->tokens));
  return targets.empty() ? absl::OkStatus() : LoadIds(stream, targets, activations_->targets);
}

absl::Status LlamaModel::ForwardEmbedding(const Stream& stream, UnitWeights weights) {
  ZERO_RETURN_IF_ERROR(CheckCount("embedding", weights.size(), 1));
  return EmbeddingForward(
      stream,
      {tokens(), config_.vocab_size, config_.hidden_size, options_.dtype, activations_->tokens},
      weights[kEmbedTokens], activations_->stream_at(0));
}

absl::Status LlamaModel::ForwardLayer(const Stream& stream, int64_t layer, UnitWeights weights) {
  ZERO_RETURN_IF_ERROR(CheckCount("layer", weights.size(), kLayerParameters));
  const LayerActivations& a = activations_->layer(layer);
  const void* input = activations_->stream_at(layer);
  void* output = activations_->stream_at(layer + 1);
  const int64_t hidden = config_.hidden_size;
  const DType dtype = options_.dtype;
  const auto linear = [&](int64_t out, int64_t in) {
    return MakeLinear(stream, tokens(), out, in);
  };

  ZERO_RETURN_IF_ERROR(
      RmsNormForward(stream, Norm(tokens()), input, weights[kInputNorm], a.input_norm, a.input_r));
  const Linear query = linear(config_.query_size(), hidden);
  const Linear key_value = linear(config_.key_value_size(), hidden);
  ZERO_RETURN_IF_ERROR(query.Forward(a.input_norm, weights[kQuery], a.query, dtype));
  ZERO_RETURN_IF_ERROR(key_value.Forward(a.input_norm, weights[kKey], a.key, dtype));
  ZERO_RETURN_IF_ERROR(key_value.Forward(a.input_norm, weights[kValue], a.value, dtype));
  ZERO_RETURN_IF_ERROR(RotateHeads(stream, config_.num_attention_heads, false, a.query));
  ZERO_RETURN_IF_ERROR(RotateHeads(stream, config_.num_key_value_heads, false, a.key));
  ZERO_RETURN_IF_ERROR(AttentionForward(stream, Attention(layer), a.attention, a.log_sum_exp));
  ZERO_RETURN_IF_ERROR(linear(hidden, config_.query_size())
                           .Forward(a.attention, weights[kOutput], a.middle, dtype, input));

  ZERO_RETURN_IF_ERROR(RmsNormForward(stream, Norm(tokens()), a.middle, weights[kPostAttentionNorm],
                                      a.middle_norm, a.middle_r));
  const Linear widen = linear(config_.intermediate_size, hidden);
  ZERO_RETURN_IF_ERROR(widen.Forward(a.middle_norm, weights[kGate], a.gate, dtype));
  ZERO_RETURN_IF_ERROR(widen.Forward(a.middle_norm, weights[kUp], a.up, dtype));
  ZERO_RETURN_IF_ERROR(SwiGluForward(stream, dtype, tokens() * config_.intermediate_size, a.gate,
                                     a.up, activations_->product));
  return linear(hidden, config_.intermediate_size)
      .Forward(activations_->product, weights[kDown], output, dtype, a.middle);
}

absl::Status LlamaModel::Logits(const Stream& stream, const void* matrix, int64_t first,
                                int64_t rows) const {
  const int64_t hidden = config_.hidden_size;
  const char* norm = static_cast<const char*>(activations_->final_norm);
  return MakeLinear(stream, rows, config_.vocab_size, hidden)
      .Forward(norm + first * hidden * SizeOf(options_.dtype), matrix, activations_->logits,
               DType::kF32);
}

absl::Status LlamaModel::ForwardHead(const Stream& stream, UnitWeights weights, UnitWeights tied,
                                     LossSum* loss) {
  ZERO_ASSIGN_OR_RETURN(const void* matrix, HeadMatrix(config_, weights, tied));
  Activations& a = *activations_;
  ZERO_RETURN_IF_ERROR(RmsNormForward(stream, Norm(tokens()),
                                      a.stream_at(config_.num_hidden_layers), weights[kFinalNorm],
                                      a.final_norm, a.final_r));
  for (int64_t first = 0; first < tokens(); first += a.logit_rows) {
    const int64_t rows = std::min(a.logit_rows, tokens() - first);
    ZERO_RETURN_IF_ERROR(Logits(stream, matrix, first, rows));
    ZERO_RETURN_IF_ERROR(
        CrossEntropyForward(stream, {rows, config_.vocab_size, a.logits, a.targets + first},
                            a.losses + first, a.lse + first));
  }
  return SumLosses(stream, tokens(), a.losses, a.targets, loss);
}

absl::Status LlamaModel::ForwardLogits(const Stream& stream, UnitWeights weights, UnitWeights tied,
                                       int64_t position, float* logits) {
  ZERO_ASSIGN_OR_RETURN(const void* matrix, HeadMatrix(config_, weights, tied));
  if (position < 0 || position >= options_.sequence_length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ForwardLogits: position ", position, " is not in 0 ... ", options_.sequence_length - 1));
  }
  Activations& a = *activations_;
  const int64_t row_bytes = config_.hidden_size * SizeOf(options_.dtype);
  const char* from = static_cast<const char*>(a.stream_at(config_.num_hidden_layers));
  for (int64_t row = 0; row < options_.micro_batch; ++row) {
    ZERO_RETURN_IF_ERROR(stream.device().Copy(
        stream, static_cast<char*>(a.last_rows) + row * row_bytes,
        from + (row * options_.sequence_length + position) * row_bytes, row_bytes));
  }
  ZERO_RETURN_IF_ERROR(RmsNormForward(stream, Norm(options_.micro_batch), a.last_rows,
                                      weights[kFinalNorm], a.final_norm, a.final_r));
  return MakeLinear(stream, options_.micro_batch, config_.vocab_size, config_.hidden_size)
      .Forward(a.final_norm, matrix, logits, DType::kF32);
}

}  // namespace zero::llama
