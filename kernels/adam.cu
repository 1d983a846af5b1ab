#include "kernels/adam_math.h"
#include "kernels/cuda_kernels.h"
#include "kernels/update.cuh"

namespace zero::cuda {
namespace {

struct AdamFormula {
  // With masters of fp32 four arrays: eight accesses of 16 bytes are on their way with one pack.
  static constexpr int kPacksInFlight = 1;
  static constexpr int kMoments = 2;
  __device__ static void Update(const AdamArguments& a, const StepScalars& s,
                                const GroupScalars& row, float gradient, float* master,
                                float* moments) {
    AdamMath(a, s, row, gradient, master, &moments[0], &moments[1]);
  }
};

}  // namespace

absl::Status Adam(const Stream& stream, const AdamArguments& a, int64_t first) {
  return LaunchUpdate<AdamFormula>("adam", stream, a, {a.moment1, a.moment2}, first);
}

}  // namespace zero::cuda
