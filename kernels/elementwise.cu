#include "kernels/cuda_kernels.h"
#include "kernels/element_type.h"
#include "kernels/elements.cuh"

namespace zero::cuda {
namespace {

template <class In, class Sum>
struct AddOp {
  static constexpr int kPacksInFlight = 2;
  template <int kWidth>
  struct Pack {
    float in[kWidth];
    float sum[kWidth];
  };

  __device__ bool Enabled() const { return true; }
  template <int kWidth>
  __device__ void Read(int64_t i, Pack<kWidth>* pack) const {
    LoadElements(in + i, pack->in);
    LoadElements(sum + i, pack->sum);
  }
  template <int kWidth>
  __device__ void Write(int64_t i, Pack<kWidth>& pack) const {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) pack.sum[k] = pack.sum[k] + pack.in[k];
    StoreElements(pack.sum, sum + i);
  }

  const In* in;
  Sum* sum;
};

template <class T>
struct ScaleOp {
  static constexpr int kPacksInFlight = 4;
  template <int kWidth>
  struct Pack {
    float values[kWidth];
  };

  __device__ bool Enabled() const { return true; }
  template <int kWidth>
  __device__ void Read(int64_t i, Pack<kWidth>* pack) const {
    LoadElements(x + i, pack->values);
  }
  template <int kWidth>
  __device__ void Write(int64_t i, Pack<kWidth>& pack) const {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) pack.values[k] = pack.values[k] * factor;
    StoreElements(pack.values, x + i);
  }

  T* x;
  float factor;
};

template <class T>
struct FillOp {
  static constexpr int kPacksInFlight = 4;
  template <int kWidth>
  struct Pack {};

  __device__ bool Enabled() const { return true; }
  template <int kWidth>
  __device__ void Read(int64_t, Pack<kWidth>*) const {}
  template <int kWidth>
  __device__ void Write(int64_t i, const Pack<kWidth>&) const {
    float values[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = value;
    StoreElements(values, x + i);
  }

  T* x;
  float value;
};

}  // namespace

absl::Status Add(const Stream& stream, const void* in, DType in_type, void* sum, DType sum_type,
                 int64_t n, int64_t first) {
  return WithElementType(in_type, [&](auto from) {
    return WithElementType(sum_type, [&](auto to) {
      using In = decltype(from);
      using Sum = decltype(to);
      const AddOp<In, Sum> op{static_cast<const In*>(in), static_cast<Sum*>(sum)};
      Alignment alignment(first);
      alignment.Include(op.in);
      alignment.Include(op.sum);
      return ForEachElement<kPack<In, Sum>>("add", stream, op, alignment, first, n);
    });
  });
}

absl::Status Scale(const Stream& stream, void* x, DType type, float factor, int64_t n,
                   int64_t first) {
  return WithElementType(type, [&](auto element) {
    using T = decltype(element);
    const ScaleOp<T> op{static_cast<T*>(x), factor};
    Alignment alignment(first);
    alignment.Include(op.x);
    return ForEachElement<kPack<T>>("scale", stream, op, alignment, first, n);
  });
}

absl::Status Fill(const Stream& stream, void* x, DType type, float value, int64_t n,
                  int64_t first) {
  return WithElementType(type, [&](auto element) {
    using T = decltype(element);
    const FillOp<T> op{static_cast<T*>(x), value};
    Alignment alignment(first);
    alignment.Include(op.x);
    return ForEachElement<kPack<T>>("fill", stream, op, alignment, first, n);
  });
}

}  // namespace zero::cuda
