// RMSNorm, forward and backward.
#include <cmath>
#include <vector>

#include "examples/llama/cuda_ops.h"
#include "examples/llama/host_op.h"
#include "examples/llama/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "examples/llama/ops_norm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "examples/llama/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zero::llama::HWY_NAMESPACE {

template <class T>
HWY_INLINE float SumOfSquares(const T* x, size_t n) {
  Vec sum = Zero();
  ForVectors(n, [&](size_t i, auto part) HWY_ATTR {
    const Vec v = Load(x + i, part);
    sum = hn::MulAdd(v, v, sum);
  });
  return SumLanes(sum);
}

template <class T>
void NormRows(const RmsNormArguments& a, const T* x, const T* w, T* y, float* r, int64_t begin,
              int64_t end) {
  const auto width = static_cast<size_t>(a.width);
  for (int64_t row = begin; row < end; ++row) {
    const T* in = x + row * a.width;
    T* out = y + row * a.width;
    const float mean = SumOfSquares(in, width) / static_cast<float>(a.width);
    r[row] = 1.0f / std::sqrt(mean + a.epsilon);
    const Vec scale = Set(r[row]);
    ForVectors(width, [=](size_t i, auto part) HWY_ATTR {
      Store(hn::Mul(hn::Mul(Load(in + i, part), scale), Load(w + i, part)), out + i, part);
    });
  }
}

// Sum of dy w x over a row.
template <class T>
HWY_INLINE float RowProduct(const float* dy, const T* w, const T* x, size_t n) {
  Vec sum = Zero();
  ForVectors(n, [&](size_t i, auto part) HWY_ATTR {
    const Vec h = hn::Mul(Load(dy + i, part), Load(w + i, part));
    sum = hn::MulAdd(h, Load(x + i, part), sum);
  });
  return SumLanes(sum);
}

// Rows [begin, end) of dx, and their sum of dy x r added to `dw`, which may be null.
template <class T>
void NormGradientRows(const RmsNormArguments& a, const RmsNormGradients& g, float* dw,
                      int64_t begin, int64_t end) {
  const auto width = static_cast<size_t>(a.width);
  const T* w = static_cast<const T*>(g.w);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = row * a.width;
    const float* dy = g.dy + first;
    const T* x = static_cast<const T*>(g.x) + first;
    const T* residual = g.residual != nullptr ? static_cast<const T*>(g.residual) + first : nullptr;
    T* dx = static_cast<T*>(g.dx) + first;
    const float r = g.r[row];
    const float mean = RowProduct(dy, w, x, width) / static_cast<float>(a.width);
    const Vec scale = Set(r);
    const Vec back = Set(r * r * r * mean);
    ForVectors(width, [=](size_t i, auto part) HWY_ATTR {
      const Vec dyv = Load(dy + i, part);
      const Vec xv = Load(x + i, part);
      Vec d = hn::NegMulAdd(xv, back, hn::Mul(hn::Mul(dyv, Load(w + i, part)), scale));
      if (residual != nullptr) d = hn::Add(d, Load(residual + i, part));
      Store(d, dx + i, part);
      if (dw != nullptr) {
        Store(hn::MulAdd(dyv, hn::Mul(xv, scale), Load(dw + i, part)), dw + i, part);
      }
    });
  }
}

void RunNorm(const RmsNormArguments& arguments, const void* x, const void* w, void* y, float* r,
             int64_t begin, int64_t end) {
  WithElement(arguments.dtype, [=, &arguments](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    NormRows(arguments, static_cast<const T*>(x), static_cast<const T*>(w), static_cast<T*>(y), r,
             begin, end);
  });
}

void RunNormGradient(const RmsNormArguments& arguments, const RmsNormGradients& gradients,
                     float* dw, int64_t begin, int64_t end) {
  WithElement(arguments.dtype, [=, &arguments, &gradients](auto* t) {
    NormGradientRows<std::remove_pointer_t<decltype(t)>>(arguments, gradients, dw, begin, end);
  });
}

}  // namespace zero::llama::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::llama {

HWY_EXPORT(RunNorm);
HWY_EXPORT(RunNormGradient);

namespace {

// Rows whose part of dw is summed by itself; a constant, so that the sum does not depend on
// threads.
constexpr int64_t kNormBlock = 128;

// dw = sum of the blocks' rows of `parts`, in order.
template <class T>
void AddBlocks(const std::vector<float>& parts, int64_t width, bool accumulate, T* dw) {
  const auto count = static_cast<int64_t>(parts.size()) / width;
  for (int64_t i = 0; i < width; ++i) {
    float sum = 0;
    for (int64_t block = 0; block < count; ++block) {
      sum += parts[static_cast<size_t>(block * width + i)];
    }
    dw[i] = FromFloat<T>(accumulate ? ToFloat(dw[i]) + sum : sum);
  }
}

void NormBackward(ThreadPool* pool, const RmsNormArguments& a, const RmsNormGradients& g) {
  const int64_t blocks = (a.rows + kNormBlock - 1) / kNormBlock;
  thread_local std::vector<float> parts;
  float* sums = nullptr;
  if (g.dw != nullptr) {
    parts.assign(static_cast<size_t>(blocks * a.width), 0.0f);
    sums = parts.data();
  }
  ParallelFor(pool, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kNormBlock;
      const int64_t last = first + kNormBlock < a.rows ? first + kNormBlock : a.rows;
      float* dw = sums != nullptr ? sums + block * a.width : nullptr;
      HWY_DYNAMIC_DISPATCH(RunNormGradient)(a, g, dw, first, last);
    }
  });
  if (g.dw == nullptr) return;
  WithElement(a.dtype, [&](auto* t) {
    AddBlocks(parts, a.width, g.accumulate, static_cast<decltype(t)>(g.dw));
  });
}

}  // namespace

absl::Status RmsNormForward(const Stream& stream, const RmsNormArguments& arguments, const void* x,
                            const void* w, void* y, float* r) {
  if (OnCuda(stream)) return cuda::RmsNormForward(stream, arguments, x, w, y, r);
  return EnqueueLoop(stream, "rmsnorm", arguments.rows, RowGrain(arguments.width),
                     [=](int64_t begin, int64_t end) {
                       HWY_DYNAMIC_DISPATCH(RunNorm)(arguments, x, w, y, r, begin, end);
                     });
}

absl::Status RmsNormBackward(const Stream& stream, const RmsNormArguments& arguments,
                             const RmsNormGradients& gradients) {
  if (OnCuda(stream)) return cuda::RmsNormBackward(stream, arguments, gradients);
  return stream.Enqueue("rmsnorm backward", [pool = HostPool(stream), arguments, gradients] {
    NormBackward(pool, arguments, gradients);
    return absl::OkStatus();
  });
}

}  // namespace zero::llama
#endif  // HWY_ONCE
