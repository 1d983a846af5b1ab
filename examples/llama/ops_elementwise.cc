// SwiGLU, residual sums and rotary embedding.
#include "examples/llama/cuda_ops.h"
#include "examples/llama/host_op.h"
#include "examples/llama/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "examples/llama/ops_elementwise.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "examples/llama/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zero::llama::HWY_NAMESPACE {

HWY_INLINE Vec Sigmoid(Vec x) { return hn::Div(Set(1.0f), hn::Add(Set(1.0f), Exp(hn::Neg(x)))); }

template <class T>
void SwiGlu(const T* gate, const T* up, T* out, size_t n) {
  ForVectors(n, [=](size_t i, auto part) HWY_ATTR {
    const Vec g = Load(gate + i, part);
    Store(hn::Mul(hn::Mul(g, Sigmoid(g)), Load(up + i, part)), out + i, part);
  });
}

template <class T>
void SwiGluGradient(const T* gate, const T* up, const T* d_out, T* d_gate, T* d_up, size_t n) {
  ForVectors(n, [=](size_t i, auto part) HWY_ATTR {
    const Vec one = Set(1.0f);
    const Vec g = Load(gate + i, part);
    const Vec d = Load(d_out + i, part);
    const Vec s = Sigmoid(g);
    const Vec slope = hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));
    Store(hn::Mul(hn::Mul(d, Load(up + i, part)), slope), d_gate + i, part);
    Store(hn::Mul(d, hn::Mul(g, s)), d_up + i, part);
  });
}

template <class T>
void Sum(const T* a, const T* b, T* sum, size_t n) {
  ForVectors(n, [=](size_t i, auto part) HWY_ATTR {
    Store(hn::Add(Load(a + i, part), Load(b + i, part)), sum + i, part);
  });
}

// One head of one token. `sign` -1 turns backward.
template <class T>
HWY_INLINE void Turn(T* x, const float* cos, const float* sin, float sign, size_t half) {
  const Vec factor = Set(sign);
  ForVectors(half, [=](size_t i, auto part) HWY_ATTR {
    const Vec a = Load(x + i, part);
    const Vec b = Load(x + half + i, part);
    const Vec c = Load(cos + i, part);
    const Vec s = hn::Mul(factor, Load(sin + i, part));
    Store(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), x + i, part);
    Store(hn::MulAdd(b, c, hn::Mul(a, s)), x + half + i, part);
  });
}

template <class T>
void RotaryRows(const RotaryArguments& a, T* x, int64_t begin, int64_t end) {
  const int64_t half = a.head_dim / 2;
  const float sign = a.backward ? -1.0f : 1.0f;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t position = t % a.sequence;
    for (int64_t h = 0; h < a.heads; ++h) {
      Turn(x + (t * a.heads + h) * a.head_dim, a.cos + position * half, a.sin + position * half,
           sign, static_cast<size_t>(half));
    }
  }
}

void RunSwiGlu(DType dtype, const void* gate, const void* up, void* out, int64_t begin,
               int64_t end) {
  WithElement(dtype, [=](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    SwiGlu(static_cast<const T*>(gate) + begin, static_cast<const T*>(up) + begin,
           static_cast<T*>(out) + begin, static_cast<size_t>(end - begin));
  });
}

void RunSwiGluGradient(DType dtype, const void* gate, const void* up, const void* d_out,
                       void* d_gate, void* d_up, int64_t begin, int64_t end) {
  WithElement(dtype, [=](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    SwiGluGradient(static_cast<const T*>(gate) + begin, static_cast<const T*>(up) + begin,
                   static_cast<const T*>(d_out) + begin, static_cast<T*>(d_gate) + begin,
                   static_cast<T*>(d_up) + begin, static_cast<size_t>(end - begin));
  });
}

void RunSum(DType dtype, const void* a, const void* b, void* sum, int64_t begin, int64_t end) {
  WithElement(dtype, [=](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    Sum(static_cast<const T*>(a) + begin, static_cast<const T*>(b) + begin,
        static_cast<T*>(sum) + begin, static_cast<size_t>(end - begin));
  });
}

void RunRotary(const RotaryArguments& arguments, void* x, int64_t begin, int64_t end) {
  WithElement(arguments.dtype, [=, &arguments](auto* t) {
    RotaryRows(arguments, static_cast<decltype(t)>(x), begin, end);
  });
}

}  // namespace zero::llama::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::llama {

HWY_EXPORT(RunSwiGlu);
HWY_EXPORT(RunSwiGluGradient);
HWY_EXPORT(RunSum);
HWY_EXPORT(RunRotary);

namespace {
constexpr int64_t kElementGrain = 1 << 14;
}

absl::Status SwiGluForward(const Stream& stream, DType dtype, int64_t n, const void* gate,
                           const void* up, void* out) {
  if (OnCuda(stream)) return cuda::SwiGluForward(stream, dtype, n, gate, up, out);
  return EnqueueLoop(stream, "swiglu", n, kElementGrain, [=](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RunSwiGlu)(dtype, gate, up, out, begin, end);
  });
}

absl::Status SwiGluBackward(const Stream& stream, DType dtype, int64_t n, const void* gate,
                            const void* up, const void* d_out, void* d_gate, void* d_up) {
  if (OnCuda(stream)) {
    return cuda::SwiGluBackward(stream, dtype, n, gate, up, d_out, d_gate, d_up);
  }
  return EnqueueLoop(stream, "swiglu backward", n, kElementGrain, [=](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RunSwiGluGradient)(dtype, gate, up, d_out, d_gate, d_up, begin, end);
  });
}

absl::Status AddResidual(const Stream& stream, DType dtype, int64_t n, const void* a, const void* b,
                         void* sum) {
  if (OnCuda(stream)) return cuda::AddResidual(stream, dtype, n, a, b, sum);
  return EnqueueLoop(stream, "add", n, kElementGrain, [=](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RunSum)(dtype, a, b, sum, begin, end);
  });
}

absl::Status Rotary(const Stream& stream, const RotaryArguments& arguments, void* x) {
  if (arguments.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("Rotary: head_dim ", arguments.head_dim,
                                                   " is odd; elements are turned in pairs"));
  }
  if (OnCuda(stream)) return cuda::Rotary(stream, arguments, x);
  const int64_t grain = RowGrain(arguments.heads * arguments.head_dim);
  return EnqueueLoop(stream, arguments.backward ? "rotary backward" : "rotary", arguments.tokens,
                     grain, [=](int64_t begin, int64_t end) {
                       HWY_DYNAMIC_DISPATCH(RunRotary)(arguments, x, begin, end);
                     });
}

}  // namespace zero::llama
#endif  // HWY_ONCE
