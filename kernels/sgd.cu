#include "kernels/cuda_kernels.h"
#include "kernels/sgd_math.h"
#include "kernels/update.cuh"

namespace zero::cuda {
namespace {

template <bool kHasMoment, class Gradient, class Weight>
struct SgdOp {
  static constexpr int kPacksInFlight = 2;
  template <int kWidth>
  struct Pack {
    float gradient[kWidth];
    float master[kWidth];
    float moment[kHasMoment ? kWidth : 1];
  };

  __device__ bool Enabled() const { return a.scalars->apply != 0; }
  template <int kWidth>
  __device__ void Read(int64_t i, Pack<kWidth>* pack) const {
    LoadElements(static_cast<const Gradient*>(a.gradient) + i, pack->gradient);
    LoadElements(a.master + i, pack->master);
    if constexpr (kHasMoment) LoadElements(a.moment1 + i, pack->moment);
  }
  template <int kWidth>
  __device__ void Write(int64_t i, Pack<kWidth>& pack) const {
    const StepScalars scalars = *a.scalars;
    const GroupScalars row = a.rows[a.groups[i / kGroupElements]];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      SgdMath(a, scalars, row, pack.gradient[k], &pack.master[k],
              kHasMoment ? &pack.moment[kHasMoment ? k : 0] : nullptr);
    }
    if constexpr (kHasMoment) StoreElements(pack.moment, a.moment1 + i);
    StoreElements(pack.master, a.master + i);
    StoreWeight<kWidth, Weight>(pack.master, a.weight, i);
  }

  SgdArguments a;
};

template <bool kHasMoment>
absl::Status LaunchSgd(const Stream& stream, const SgdArguments& a, int64_t first) {
  return WithElementType(a.gradient_type, [&](auto gradient) {
    return WithWeightType(a.weight, a.weight_type, [&](auto weight) {
      using Gradient = decltype(gradient);
      using Weight = decltype(weight);
      Alignment alignment = UpdateAlignment<Gradient, Weight>(a, first);
      if constexpr (kHasMoment) alignment.Include(a.moment1);
      alignment.RequireNoHead();
      return ForEachElement<kUpdatePack<Gradient, Weight>>(
          "sgd", stream, SgdOp<kHasMoment, Gradient, Weight>{a}, alignment, first, a.n);
    });
  });
}

}  // namespace

absl::Status Sgd(const Stream& stream, const SgdArguments& a, int64_t first) {
  return a.moment1 != nullptr ? LaunchSgd<true>(stream, a, first)
                              : LaunchSgd<false>(stream, a, first);
}

}  // namespace zero::cuda
