// Stands in for the .cu files in builds without the CUDA toolkit.
#include "kernels/cuda_kernels.h"

namespace zero::cuda {
namespace {

absl::Status NoCuda() {
  return absl::UnimplementedError(
      "this build has no CUDA: build it where the CUDA toolkit is, or use a HostDevice");
}

}  // namespace

absl::Status Cast(const Stream&, const void*, DType, void*, DType, int64_t, int64_t) {
  return NoCuda();
}
absl::Status Add(const Stream&, const void*, DType, void*, DType, int64_t, int64_t) {
  return NoCuda();
}
absl::Status Scale(const Stream&, void*, DType, float, int64_t, int64_t) { return NoCuda(); }
absl::Status Fill(const Stream&, void*, DType, float, int64_t, int64_t) { return NoCuda(); }
absl::Status OrderedSum(const Stream&, const OrderedSumArguments&, int64_t) { return NoCuda(); }
absl::Status Norm(const Stream&, const void*, DType, int64_t, NormPartial*, NormPartial*, int64_t) {
  return NoCuda();
}
absl::Status Adam(const Stream&, const AdamArguments&, int64_t) { return NoCuda(); }
absl::Status Sgd(const Stream&, const SgdArguments&, int64_t) { return NoCuda(); }
absl::Status Lion(const Stream&, const LionArguments&, int64_t) { return NoCuda(); }
absl::Status CombineNorms(const Stream&, const NormPartial*, const int64_t*, int64_t, double,
                          int64_t*, RankNorm*) {
  return NoCuda();
}
absl::Status NoteNonFinite(const Stream&, const NormPartial*, int64_t, int64_t*) {
  return NoCuda();
}
absl::Status MarkFailed(const Stream&, const int32_t*, RankNorm*) { return NoCuda(); }
absl::Status DecideStep(const Stream&, const DecideArguments&) { return NoCuda(); }
absl::Status RecordNorms(const Stream&, const DecideArguments&) { return NoCuda(); }
absl::Status NoteFailure(const Stream&, const int32_t*, int32_t*) { return NoCuda(); }
absl::Status ZeroRanges(const Stream&, const std::vector<ByteRange>&, int64_t) { return NoCuda(); }

}  // namespace zero::cuda
