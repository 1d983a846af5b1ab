#include "examples/llama/train_pass.h"

#include "device/status.h"
#include "examples/llama/model_description.h"

namespace zero::llama {
namespace {

UnitGradients Of(const Gradients& gradients) { return {gradients.data, gradients.accumulate}; }

// The verbs around each unit's forward and backward.
class PassDriver {
 public:
  PassDriver(ShardedOptimizer& optimizer, LlamaModel& model, const Stream& stream)
      : optimizer_(optimizer),
        model_(model),
        stream_(stream),
        layers_(model.config().num_hidden_layers),
        head_(HeadUnit(model.config())),
        tied_(model.config().tie_word_embeddings) {}

  absl::Status ForwardBody() {
    ZERO_ASSIGN_OR_RETURN(const Weights embedding, Acquire(EmbeddingUnit()));
    ZERO_RETURN_IF_ERROR(model_.ForwardEmbedding(stream_, embedding.data));
    ZERO_RETURN_IF_ERROR(Release(EmbeddingUnit()));
    for (int64_t layer = 0; layer < layers_; ++layer) {
      ZERO_ASSIGN_OR_RETURN(const Weights weights, Acquire(LayerUnit(layer)));
      ZERO_RETURN_IF_ERROR(model_.ForwardLayer(stream_, layer, weights.data));
      ZERO_RETURN_IF_ERROR(Release(LayerUnit(layer)));
    }
    return absl::OkStatus();
  }

  absl::Status ForwardHead(LossSum* loss) {
    ZERO_ASSIGN_OR_RETURN(const Weights tied, AcquireTied());
    ZERO_ASSIGN_OR_RETURN(const Weights head, Acquire(head_));
    ZERO_RETURN_IF_ERROR(model_.ForwardHead(stream_, head.data, tied.data, loss));
    ZERO_RETURN_IF_ERROR(Release(head_));
    return ReleaseTied();
  }

  absl::Status ForwardLogits(int64_t position, float* logits) {
    ZERO_ASSIGN_OR_RETURN(const Weights tied, AcquireTied());
    ZERO_ASSIGN_OR_RETURN(const Weights head, Acquire(head_));
    ZERO_RETURN_IF_ERROR(model_.ForwardLogits(stream_, head.data, tied.data, position, logits));
    ZERO_RETURN_IF_ERROR(Release(head_));
    return ReleaseTied();
  }

  // A tied embedding's gradient starts here and is reported in BackwardEmbedding, its last use.
  absl::Status BackwardHead() {
    ZERO_ASSIGN_OR_RETURN(const Weights tied, AcquireTied());
    ZERO_ASSIGN_OR_RETURN(const Weights head, Acquire(head_));
    Gradients tied_gradients;
    if (tied_) {
      ZERO_ASSIGN_OR_RETURN(tied_gradients, optimizer_.AcquireGradients(EmbeddingUnit(), stream_));
    }
    ZERO_ASSIGN_OR_RETURN(const Gradients gradients, optimizer_.AcquireGradients(head_, stream_));
    ZERO_RETURN_IF_ERROR(model_.BackwardHead(stream_, head.data, Of(gradients), tied.data,
                                             Of(tied_gradients), optimizer_.loss_scale()));
    ZERO_RETURN_IF_ERROR(optimizer_.ReduceGradients(head_, stream_));
    ZERO_RETURN_IF_ERROR(Release(head_));
    return ReleaseTied();
  }

  absl::Status BackwardBody() {
    for (int64_t layer = layers_ - 1; layer >= 0; --layer) {
      const int unit = LayerUnit(layer);
      ZERO_ASSIGN_OR_RETURN(const Weights weights, Acquire(unit));
      ZERO_ASSIGN_OR_RETURN(const Gradients gradients, optimizer_.AcquireGradients(unit, stream_));
      ZERO_RETURN_IF_ERROR(model_.BackwardLayer(stream_, layer, weights.data, Of(gradients)));
      ZERO_RETURN_IF_ERROR(optimizer_.ReduceGradients(unit, stream_));
      ZERO_RETURN_IF_ERROR(Release(unit));
    }
    const int unit = EmbeddingUnit();
    ZERO_RETURN_IF_ERROR(Acquire(unit).status());
    ZERO_ASSIGN_OR_RETURN(const Gradients gradients, optimizer_.AcquireGradients(unit, stream_));
    ZERO_RETURN_IF_ERROR(model_.BackwardEmbedding(stream_, Of(gradients)));
    ZERO_RETURN_IF_ERROR(optimizer_.ReduceGradients(unit, stream_));
    return Release(unit);
  }

 private:
  absl::StatusOr<Weights> Acquire(int unit) { return optimizer_.AcquireWeights(unit, stream_); }
  absl::Status Release(int unit) { return optimizer_.ReleaseWeights(unit, stream_); }
  absl::StatusOr<Weights> AcquireTied() {
    if (!tied_) return Weights();
    return Acquire(EmbeddingUnit());
  }
  absl::Status ReleaseTied() { return tied_ ? Release(EmbeddingUnit()) : absl::OkStatus(); }

  ShardedOptimizer& optimizer_;
  LlamaModel& model_;
  const Stream& stream_;
  const int64_t layers_;
  const int head_;
  const bool tied_;
};

}  // namespace

absl::Status TrainPass(ShardedOptimizer& optimizer, LlamaModel& model, const Stream& stream,
                       Pass pass, const Batch& batch, LossSum* loss, double loss_weight) {
  if (pass == Pass::kEvaluate) {
    return absl::InvalidArgumentError("TrainPass: kEvaluate has no backward; use EvaluatePass");
  }
  if (!model.options().training) {
    return absl::FailedPreconditionError("TrainPass: the model was made with training false");
  }
  ZERO_RETURN_IF_ERROR(model.LoadBatch(stream, batch.tokens, batch.targets));
  ZERO_RETURN_IF_ERROR(optimizer.BeginPass(pass, loss_weight));
  PassDriver driver(optimizer, model, stream);
  ZERO_RETURN_IF_ERROR(driver.ForwardBody());
  ZERO_RETURN_IF_ERROR(driver.ForwardHead(loss));
  ZERO_RETURN_IF_ERROR(driver.BackwardHead());
  return driver.BackwardBody();
}

absl::Status EvaluatePass(ShardedOptimizer& optimizer, LlamaModel& model, const Stream& stream,
                          const Batch& batch, LossSum* loss) {
  ZERO_RETURN_IF_ERROR(model.LoadBatch(stream, batch.tokens, batch.targets));
  ZERO_RETURN_IF_ERROR(optimizer.BeginPass(Pass::kEvaluate));
  PassDriver driver(optimizer, model, stream);
  ZERO_RETURN_IF_ERROR(driver.ForwardBody());
  return driver.ForwardHead(loss);
}

absl::Status LogitsPass(ShardedOptimizer& optimizer, LlamaModel& model, const Stream& stream,
                        absl::Span<const int32_t> tokens, int64_t position, float* logits) {
  ZERO_RETURN_IF_ERROR(model.LoadBatch(stream, tokens, {}));
  ZERO_RETURN_IF_ERROR(optimizer.BeginPass(Pass::kEvaluate));
  PassDriver driver(optimizer, model, stream);
  ZERO_RETURN_IF_ERROR(driver.ForwardBody());
  return driver.ForwardLogits(position, logits);
}

}  // namespace zero::llama
