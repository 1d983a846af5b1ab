#include "kernels/cuda_kernels.h"
#include "kernels/lion_math.h"
#include "kernels/update.cuh"

namespace zero::cuda {
namespace {

struct LionFormula {
  static constexpr int kPacksInFlight = 2;
  static constexpr int kMoments = 1;
  __device__ static void Update(const LionArguments& a, const StepScalars& s,
                                const GroupScalars& row, float gradient, float* master,
                                float* moments) {
    LionMath(a, s, row, gradient, master, &moments[0]);
  }
};

}  // namespace

absl::Status Lion(const Stream& stream, const LionArguments& a, int64_t first) {
  return LaunchUpdate<LionFormula>("lion", stream, a, {a.moment1, nullptr}, first);
}

}  // namespace zero::cuda
