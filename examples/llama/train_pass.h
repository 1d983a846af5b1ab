// Whole passes of a model over a sharded optimizer: which verb comes when.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "device/stream.h"
#include "examples/llama/model.h"
#include "examples/llama/tokens.h"
#include "zero/sharded_optimizer.h"

namespace zero::llama {

// Enqueues forward and backward of one micro-batch; `pass` is kTrain or kTrainLast. The optimizer
// must have been created with DescribeModel(model.config(), ...). The loss is multiplied by
// *optimizer.loss_scale(), not divided by the number of tokens: those of all the step's passes are
// `loss_weight` of the last, or of Step. *loss is device memory, written when `stream` gets there;
// `batch` may go when this returns.
absl::Status TrainPass(ShardedOptimizer& optimizer, LlamaModel& model, const Stream& stream,
                       Pass pass, const Batch& batch, LossSum* loss, double loss_weight = 0);

// Forward only; leaves the optimizer as it was.
absl::Status EvaluatePass(ShardedOptimizer& optimizer, LlamaModel& model, const Stream& stream,
                          const Batch& batch, LossSum* loss);

// Forward only: logits [B, vocab] fp32 (device memory) of token `position` of each row of `tokens`
// [B * T]. Tokens behind `position` do not matter, but must be in the vocabulary.
absl::Status LogitsPass(ShardedOptimizer& optimizer, LlamaModel& model, const Stream& stream,
                        absl::Span<const int32_t> tokens, int64_t position, float* logits);

}  // namespace zero::llama
