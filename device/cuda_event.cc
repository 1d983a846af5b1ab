#include "device/cuda_event.h"

#include "absl/strings/str_cat.h"
#include "device/cuda_stream.h"
#include "device/status.h"

namespace zero {

absl::StatusOr<std::unique_ptr<Event>> CudaEvent::Create(CudaContext* context) {
  cudaEvent_t native = nullptr;
  ZERO_RETURN_IF_ERROR(context->Call("cudaEventCreateWithFlags", [&] {
    return cudaEventCreateWithFlags(&native, cudaEventDisableTiming);
  }));
  return std::unique_ptr<Event>(new CudaEvent(context, native));
}

CudaEvent::~CudaEvent() {
  context_->Release("cudaEventDestroy", [&] { return cudaEventDestroy(native_); });
}

absl::Status CudaEvent::Record(const Stream& stream) {
  const auto* cuda_stream = dynamic_cast<const CudaStream*>(&stream);
  if (cuda_stream == nullptr || cuda_stream->context().id() != context_->id()) {
    return absl::InvalidArgumentError(absl::StrCat("an event of GPU ", context_->id(),
                                                   " cannot be recorded in stream '", stream.name(),
                                                   "', which is not of that GPU"));
  }
  ZERO_RETURN_IF_ERROR(context_->Call(
      "cudaEventRecord", [&] { return cudaEventRecord(native_, cuda_stream->native()); }));
  recorded_ = true;
  return absl::OkStatus();
}

bool CudaEvent::Reached() const {
  if (!recorded_) return false;
  const absl::StatusOr<bool> over =
      context_->Poll("cudaEventQuery", [&] { return cudaEventQuery(native_); });
  return over.ok() ? *over : context_->lost();
}

absl::Status CudaEvent::Synchronize(absl::Duration timeout) const {
  if (!recorded_) {
    return absl::FailedPreconditionError("waiting for an event that was never recorded");
  }
  return context_->Await(
      "cudaEventQuery", [&] { return cudaEventQuery(native_); }, timeout,
      CudaContext::Wait::kCounted);
}

}  // namespace zero
