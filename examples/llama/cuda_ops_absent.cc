// The CUDA operations of a build without CUDA.
#include "examples/llama/cuda_ops.h"
#include "examples/llama/cuda_products.h"

namespace zero::llama {
namespace {

absl::Status Absent() {
  return absl::UnimplementedError("this build has no CUDA: use --device host");
}

}  // namespace

std::string CudaProducts::Library() { return "none: this build has no CUDA"; }
absl::StatusOr<std::unique_ptr<CudaProducts>> CudaProducts::Create(Device*, void*, int64_t) {
  return Absent();
}

namespace cuda {

absl::Status LoadIds(const Stream&, absl::Span<const int32_t>, int32_t*) { return Absent(); }
absl::Status TiledProduct(const Stream&, const Product&) { return Absent(); }
absl::Status EmbeddingForward(const Stream&, const EmbeddingArguments&, const void*, void*) {
  return Absent();
}
absl::Status EmbeddingBackward(const Stream&, const EmbeddingArguments&, const void*, void*, bool) {
  return Absent();
}
absl::Status RmsNormForward(const Stream&, const RmsNormArguments&, const void*, const void*, void*,
                            float*) {
  return Absent();
}
absl::Status RmsNormBackward(const Stream&, const RmsNormArguments&, const RmsNormGradients&) {
  return Absent();
}
absl::Status Rotary(const Stream&, const RotaryArguments&, void*) { return Absent(); }
absl::Status AttentionForward(const Stream&, const AttentionArguments&, void*, float*) {
  return Absent();
}
absl::Status AttentionBackward(const Stream&, const AttentionArguments&,
                               const AttentionGradients&) {
  return Absent();
}
absl::Status SwiGluForward(const Stream&, DType, int64_t, const void*, const void*, void*) {
  return Absent();
}
absl::Status SwiGluBackward(const Stream&, DType, int64_t, const void*, const void*, const void*,
                            void*, void*) {
  return Absent();
}
absl::Status AddResidual(const Stream&, DType, int64_t, const void*, const void*, void*) {
  return Absent();
}
absl::Status CrossEntropyForward(const Stream&, const CrossEntropyArguments&, float*, float*) {
  return Absent();
}
absl::Status CrossEntropyBackward(const Stream&, const CrossEntropyArguments&, const float*,
                                  const float*, float, DType, void*) {
  return Absent();
}
absl::Status SumLosses(const Stream&, int64_t, const float*, const int32_t*, LossSum*) {
  return Absent();
}

}  // namespace cuda
}  // namespace zero::llama
