#include "device/cuda_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/cuda_event.h"
#include "device/device.h"
#include "device/status.h"

namespace zero {

cudaStream_t NativeStream(const Stream& stream) {
  return static_cast<const CudaStream&>(stream).native();
}

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Create(Device* device, CudaContext* context,
                                                               const std::string& name) {
  cudaStream_t native = nullptr;
  ZERO_RETURN_IF_ERROR(context->Call("cudaStreamCreateWithFlags", [&] {
    return cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking);
  }));
  return Finish(
      std::unique_ptr<CudaStream>(new CudaStream(device, context, native, /*owned=*/true, name)));
}

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Wrap(Device* device, CudaContext* context,
                                                             cudaStream_t native,
                                                             const std::string& name) {
  int id = -1;
  ZERO_RETURN_IF_ERROR(
      context->Call("cudaStreamGetDevice", [&] { return cudaStreamGetDevice(native, &id); }));
  if (id != context->id()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "stream '", name, "' is of GPU ", id, ", the device that wraps it is GPU ", context->id()));
  }
  return Finish(
      std::unique_ptr<CudaStream>(new CudaStream(device, context, native, /*owned=*/false, name)));
}

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Finish(std::unique_ptr<CudaStream> stream) {
  ZERO_RETURN_IF_ERROR(stream->context_->Call("cudaEventCreateWithFlags", [&] {
    return cudaEventCreateWithFlags(&stream->end_, cudaEventDisableTiming);
  }));
  return stream;
}

CudaStream::~CudaStream() {
  if (end_ != nullptr) {
    context_->CountDropped([&] { return Drain(); });
    context_->Release("cudaEventDestroy", [&] { return cudaEventDestroy(end_); });
  }
  if (!owned_) return;
  context_->Release("cudaStreamDestroy", [&] { return cudaStreamDestroy(native_); });
}

absl::Status CudaStream::Enqueue(Operation operation) const {
  return absl::UnimplementedError(absl::StrCat("stream '", name_, "' of GPU ", context_->id(),
                                               " cannot run '", operation.name,
                                               "', a function of the host"));
}

absl::Status CudaStream::Wait(const Event& event) const {
  const auto* cuda_event = dynamic_cast<const CudaEvent*>(&event);
  if (cuda_event == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream '", name_, "' cannot wait for an event of another kind of device"));
  }
  if (!cuda_event->recorded()) {
    return absl::FailedPreconditionError(
        absl::StrCat("stream '", name_, "' would wait for an event that was never recorded"));
  }
  return cuda_event->HoldBack(context_, native_);
}

absl::Status CudaStream::Drain(CudaContext::Wait wait) const {
  // An event, since the owner of a wrapped stream may go on enqueuing meanwhile.
  const auto record = [&] {
    return context_->Call("cudaEventRecord", [&] { return cudaEventRecord(end_, native_); });
  };
  // Memory must be safe after this even if something is refused.
  const absl::Status refused = record();
  const bool recorded = refused.ok() || record().ok();
  const absl::Status failure = context_->Await(
      recorded ? "cudaEventQuery" : "cudaStreamQuery",
      [&] { return recorded ? cudaEventQuery(end_) : Query(); }, absl::InfiniteDuration(), wait);
  return failure.ok() ? refused : failure;
}

absl::Status CudaStream::Health() const {
  ZERO_RETURN_IF_ERROR(context_->failure());
  return context_->Poll("cudaStreamQuery", [&] { return Query(); }).status();
}

}  // namespace zero
