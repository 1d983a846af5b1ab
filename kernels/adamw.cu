#include "kernels/adamw_math.h"
#include "kernels/cuda_kernels.h"
#include "kernels/update.cuh"

namespace zero::cuda {
namespace {

template <class Gradient, class Weight>
struct AdamWOp {
  // Four arrays: eight accesses of 16 bytes are on their way with one pack.
  static constexpr int kPacksInFlight = 1;
  template <int kWidth>
  struct Pack {
    float gradient[kWidth];
    float master[kWidth];
    float moment1[kWidth];
    float moment2[kWidth];
  };

  __device__ bool Enabled() const { return a.scalars->apply != 0; }
  template <int kWidth>
  __device__ void Read(int64_t i, Pack<kWidth>* pack) const {
    LoadElements(static_cast<const Gradient*>(a.gradient) + i, pack->gradient);
    LoadElements(a.master + i, pack->master);
    LoadElements(a.moment1 + i, pack->moment1);
    LoadElements(a.moment2 + i, pack->moment2);
  }
  template <int kWidth>
  __device__ void Write(int64_t i, Pack<kWidth>& pack) const {
    const StepScalars scalars = *a.scalars;
    const GroupScalars row = a.rows[a.groups[i / kGroupElements]];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      AdamWMath(a, scalars, row, pack.gradient[k], &pack.master[k], &pack.moment1[k],
                &pack.moment2[k]);
    }
    StoreElements(pack.moment1, a.moment1 + i);
    StoreElements(pack.moment2, a.moment2 + i);
    StoreElements(pack.master, a.master + i);
    StoreWeight<kWidth, Weight>(pack.master, a.weight, i);
  }

  AdamWArguments a;
};

}  // namespace

absl::Status AdamW(const Stream& stream, const AdamWArguments& a, int64_t first) {
  return WithElementType(a.gradient_type, [&](auto gradient) {
    return WithWeightType(a.weight, a.weight_type, [&](auto weight) {
      using Gradient = decltype(gradient);
      using Weight = decltype(weight);
      Alignment alignment = UpdateAlignment<Gradient, Weight>(a, first);
      alignment.Include(a.moment1);
      alignment.Include(a.moment2);
      alignment.RequireNoHead();
      return ForEachElement<kUpdatePack<Gradient, Weight>>(
          "adamw", stream, AdamWOp<Gradient, Weight>{a}, alignment, first, a.n);
    });
  });
}

}  // namespace zero::cuda
