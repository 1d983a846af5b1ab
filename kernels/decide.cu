#include "device/cuda_stream.h"
#include "kernels/cuda_kernels.h"
#include "kernels/decide_math.h"
#include "kernels/launch.cuh"

namespace zero::cuda {
namespace {

__global__ void CombineNormsKernel(const NormPartial* parts, const int64_t* bases, int64_t count,
                                   double loss_weight, int64_t* first_written, RankNorm* out) {
  CombineNormsMath(parts, bases, count, loss_weight, first_written, out);
}

__global__ void NoteNonFiniteKernel(const NormPartial* part, int64_t base, int64_t* first_written) {
  NoteNonFiniteMath(part, base, first_written);
}

__global__ void MarkFailedKernel(const int32_t* failed, RankNorm* norm) {
  MarkFailedMath(failed, norm);
}

__global__ void DecideStepKernel(const DecideArguments arguments) { DecideStepMath(arguments); }

__global__ void RecordNormsKernel(const DecideArguments arguments) { RecordNormsMath(arguments); }

__global__ void NoteFailureKernel(const int32_t* group_failed, int32_t* note) {
  NoteFailureMath(group_failed, note);
}

}  // namespace

absl::Status CombineNorms(const Stream& stream, const NormPartial* parts, const int64_t* bases,
                          int64_t count, double loss_weight, int64_t* first_written,
                          RankNorm* out) {
  return LaunchKernel("combine_norms", &CombineNormsKernel, dim3(1), dim3(1), 0,
                      NativeStream(stream), parts, bases, count, loss_weight, first_written, out);
}

absl::Status NoteNonFinite(const Stream& stream, const NormPartial* part, int64_t base,
                           int64_t* first_written) {
  return LaunchKernel("note_non_finite", &NoteNonFiniteKernel, dim3(1), dim3(1), 0,
                      NativeStream(stream), part, base, first_written);
}

absl::Status MarkFailed(const Stream& stream, const int32_t* failed, RankNorm* norm) {
  return LaunchKernel("mark_failed", &MarkFailedKernel, dim3(1), dim3(1), 0, NativeStream(stream),
                      failed, norm);
}

absl::Status DecideStep(const Stream& stream, const DecideArguments& arguments) {
  return LaunchKernel("decide_step", &DecideStepKernel, dim3(1), dim3(1), 0, NativeStream(stream),
                      arguments);
}

absl::Status RecordNorms(const Stream& stream, const DecideArguments& arguments) {
  return LaunchKernel("record_norms", &RecordNormsKernel, dim3(1), dim3(1), 0, NativeStream(stream),
                      arguments);
}

absl::Status NoteFailure(const Stream& stream, const int32_t* group_failed, int32_t* note) {
  return LaunchKernel("note_failure", &NoteFailureKernel, dim3(1), dim3(1), 0, NativeStream(stream),
                      group_failed, note);
}

}  // namespace zero::cuda
