#include "kernels/cuda_kernels.h"
#include "kernels/element_type.h"
#include "kernels/elements.cuh"

namespace zero::cuda {
namespace {

template <class Part, class Out>
struct OrderedSumOp {
  static constexpr int kPacksInFlight = 2;
  template <int kWidth>
  struct Pack {
    float sum[kWidth];
  };

  __device__ bool Enabled() const { return true; }
  template <int kWidth>
  __device__ void Read(int64_t i, Pack<kWidth>* pack) const {
    LoadElements(parts + i, pack->sum);
    // Unrolled, so that the parts are on their way together and only added in turn.
#pragma unroll 4
    for (int64_t p = 1; p < count; ++p) {
      float part[kWidth];
      LoadElements(parts + p * stride + i, part);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) pack->sum[k] = pack->sum[k] + part[k];
    }
    if (accumulate) {
      float old[kWidth];
      LoadElements(out + i, old);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) pack->sum[k] = old[k] + pack->sum[k];
    }
  }
  template <int kWidth>
  __device__ void Write(int64_t i, const Pack<kWidth>& pack) const {
    StoreElements(pack.sum, out + i);
  }

  const Part* parts;
  int64_t count;
  int64_t stride;
  Out* out;
  bool accumulate;
};

}  // namespace

absl::Status OrderedSum(const Stream& stream, const OrderedSumArguments& a, int64_t first) {
  return WithElementType(a.part_type, [&](auto part) {
    return WithElementType(a.out_type, [&](auto out) {
      using Part = decltype(part);
      using Out = decltype(out);
      const OrderedSumOp<Part, Out> op{static_cast<const Part*>(a.parts), a.part_count,
                                       a.part_stride, static_cast<Out*>(a.out), a.accumulate};
      Alignment alignment(first);
      alignment.Include(op.parts);
      if (op.count > 1) alignment.IncludeStride<Part>(op.stride);
      alignment.Include(op.out);
      return ForEachElement<kPack<Part, Out>>("ordered_sum", stream, op, alignment, first, a.n);
    });
  });
}

}  // namespace zero::cuda
