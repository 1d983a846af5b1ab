#include "kernels/cuda_kernels.h"
#include "kernels/element_type.h"
#include "kernels/elements.cuh"

namespace zero::cuda {
namespace {

template <class In, class Out>
struct CastOp {
  static constexpr int kPacksInFlight = 4;
  template <int kWidth>
  struct Pack {
    float values[kWidth];
  };

  __device__ bool Enabled() const { return true; }
  template <int kWidth>
  __device__ void Read(int64_t i, Pack<kWidth>* pack) const {
    LoadElements(in + i, pack->values);
  }
  template <int kWidth>
  __device__ void Write(int64_t i, const Pack<kWidth>& pack) const {
    StoreElements(pack.values, out + i);
  }

  const In* in;
  Out* out;
};

}  // namespace

absl::Status Cast(const Stream& stream, const void* in, DType in_type, void* out, DType out_type,
                  int64_t n, int64_t first) {
  return WithElementType(in_type, [&](auto from) {
    return WithElementType(out_type, [&](auto to) {
      using In = decltype(from);
      using Out = decltype(to);
      const CastOp<In, Out> op{static_cast<const In*>(in), static_cast<Out*>(out)};
      Alignment alignment(first);
      alignment.Include(op.in);
      alignment.Include(op.out);
      return ForEachElement<kPack<In, Out>>("cast", stream, op, alignment, first, n);
    });
  });
}

}  // namespace zero::cuda
