// Events of a CUDA device. Not for users: it names the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "absl/status/statusor.h"
#include "device/cuda_context.h"
#include "device/event.h"

namespace zero {

class CudaEvent : public Event {
 public:
  static absl::StatusOr<std::unique_ptr<Event>> Create(CudaContext* context);
  ~CudaEvent() override;

  // kInvalidArgument for a stream of another GPU.
  absl::Status Record(const Stream& stream) override;
  bool recorded() const override { return recorded_; }
  bool Reached() const override;
  absl::Status Synchronize(absl::Duration timeout) const override;

  cudaEvent_t native() const { return native_; }

 private:
  CudaEvent(CudaContext* context, cudaEvent_t native) : context_(context), native_(native) {}

  CudaContext* const context_;
  const cudaEvent_t native_;
  bool recorded_ = false;
};

}  // namespace zero
