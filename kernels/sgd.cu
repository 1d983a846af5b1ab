#include "kernels/cuda_kernels.h"
#include "kernels/sgd_math.h"
#include "kernels/update.cuh"

namespace zero::cuda {
namespace {

template <bool kHasMoment>
struct SgdFormula {
  static constexpr int kPacksInFlight = 2;
  static constexpr int kMoments = kHasMoment ? 1 : 0;
  __device__ static void Update(const SgdArguments& a, const StepScalars& s,
                                const GroupScalars& row, float gradient, float* master,
                                float* moments) {
    SgdMath(a, s, row, gradient, master, kHasMoment ? &moments[0] : nullptr);
  }
};

}  // namespace

absl::Status Sgd(const Stream& stream, const SgdArguments& a, int64_t first) {
  return a.moment1 != nullptr
             ? LaunchUpdate<SgdFormula<true>>("sgd", stream, a, {a.moment1, nullptr}, first)
             : LaunchUpdate<SgdFormula<false>>("sgd", stream, a, {nullptr, nullptr}, first);
}

}  // namespace zero::cuda
