// Softmax cross-entropy.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "examples/llama/cuda_ops.h"
#include "examples/llama/host_op.h"
#include "examples/llama/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "examples/llama/ops_loss.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "examples/llama/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zero::llama::HWY_NAMESPACE {

HWY_INLINE float LogSumExp(const float* x, size_t n) {
  float maximum = x[0];
  Vec top = Set(x[0]);
  const size_t lanes = Lanes();
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) top = hn::Max(Load(x + i), top);
  maximum = MaxLanes(top);
  for (; i < n; ++i) maximum = std::max(maximum, x[i]);

  const Vec shift = Set(maximum);
  Vec sum = Zero();
  for (i = 0; i + lanes <= n; i += lanes) sum = hn::Add(sum, Exp(hn::Sub(Load(x + i), shift)));
  double total = SumLanes(sum);
  for (; i < n; ++i) total += std::exp(static_cast<double>(x[i]) - maximum);
  return static_cast<float>(maximum + std::log(total));
}

void RunLoss(const CrossEntropyArguments& a, float* losses, float* lse, int64_t begin,
             int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* logits = a.logits + row * a.vocab;
    lse[row] = LogSumExp(logits, static_cast<size_t>(a.vocab));
    losses[row] = a.targets[row] < 0 ? 0.0f : lse[row] - logits[a.targets[row]];
  }
}

template <class T>
void LossGradientRows(const CrossEntropyArguments& a, const float* lse, float scale, T* d_logits,
                      int64_t begin, int64_t end) {
  const auto vocab = static_cast<size_t>(a.vocab);
  for (int64_t row = begin; row < end; ++row) {
    T* out = d_logits + row * a.vocab;
    const int32_t target = a.targets[row];
    if (target < 0) {
      std::memset(static_cast<void*>(out), 0, vocab * sizeof(T));
      continue;
    }
    const float* logits = a.logits + row * a.vocab;
    // Taken before the loop, which may overwrite it.
    const float at_target = std::exp(logits[target] - lse[row]) - 1.0f;
    const Vec shift = Set(lse[row]);
    const Vec factor = Set(scale);
    ForVectors(vocab, [=](size_t i, auto part) HWY_ATTR {
      Store(hn::Mul(Exp(hn::Sub(Load(logits + i, part), shift)), factor), out + i, part);
    });
    out[target] = FromFloat<T>(at_target * scale);
  }
}

void RunLossGradient(const CrossEntropyArguments& a, const float* lse, float scale, DType dtype,
                     void* d_logits, int64_t begin, int64_t end) {
  WithElement(dtype, [=, &a](auto* t) {
    LossGradientRows(a, lse, scale, static_cast<decltype(t)>(d_logits), begin, end);
  });
}

}  // namespace zero::llama::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::llama {

HWY_EXPORT(RunLoss);
HWY_EXPORT(RunLossGradient);

absl::Status CrossEntropyForward(const Stream& stream, const CrossEntropyArguments& arguments,
                                 float* losses, float* lse) {
  if (OnCuda(stream)) return cuda::CrossEntropyForward(stream, arguments, losses, lse);
  return EnqueueLoop(stream, "cross-entropy", arguments.rows, RowGrain(arguments.vocab),
                     [=](int64_t begin, int64_t end) {
                       HWY_DYNAMIC_DISPATCH(RunLoss)(arguments, losses, lse, begin, end);
                     });
}

absl::Status CrossEntropyBackward(const Stream& stream, const CrossEntropyArguments& arguments,
                                  const float* lse, const float* scale, float factor, DType dtype,
                                  void* d_logits) {
  if (OnCuda(stream)) {
    return cuda::CrossEntropyBackward(stream, arguments, lse, scale, factor, dtype, d_logits);
  }
  return EnqueueLoop(stream, "cross-entropy backward", arguments.rows, RowGrain(arguments.vocab),
                     [=](int64_t begin, int64_t end) {
                       const float all = scale != nullptr ? *scale * factor : factor;
                       HWY_DYNAMIC_DISPATCH(RunLossGradient)
                       (arguments, lse, all, dtype, d_logits, begin, end);
                     });
}

absl::Status SumLosses(const Stream& stream, int64_t rows, const float* losses,
                       const int32_t* targets, LossSum* sum) {
  if (OnCuda(stream)) return cuda::SumLosses(stream, rows, losses, targets, sum);
  return stream.Enqueue("sum losses", [=] {
    LossSum total;
    for (int64_t row = 0; row < rows; ++row) {
      if (targets[row] < 0) continue;
      total.loss += losses[row];
      ++total.tokens;
    }
    *sum = total;
    return absl::OkStatus();
  });
}

}  // namespace zero::llama
#endif  // HWY_ONCE
