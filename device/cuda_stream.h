// Streams of a CUDA device. Not for users: it names the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "device/cuda_context.h"
#include "device/stream.h"

namespace zero {

// The handle behind a stream of a device of kind kCuda, for launches and for NCCL. What takes it
// needs the stream's GPU to be current: see CurrentCudaDevice and CudaId.
cudaStream_t NativeStream(const Stream& stream);

// The GPU of a device of kind kCuda, as CUDA numbers it in this process.
int CudaId(const Device& device);

class CudaStream : public Stream {
 public:
  // A stream of its own, which does not wait for the default stream, nor that for it.
  static absl::StatusOr<std::unique_ptr<CudaStream>> Create(Device* device, CudaContext* context,
                                                            const std::string& name);
  // Somebody else's, which outlives this one. kInvalidArgument if it is another GPU's.
  static absl::StatusOr<std::unique_ptr<CudaStream>> Wrap(Device* device, CudaContext* context,
                                                          cudaStream_t native,
                                                          const std::string& name);
  ~CudaStream() override;

  Device& device() const override { return *device_; }
  const std::string& name() const override { return name_; }
  using Stream::Enqueue;
  absl::Status Enqueue(Operation operation) const override;
  absl::Status Wait(const Event& event) const override;
  absl::Status Synchronize() const override { return Drain(CudaContext::Wait::kCounted); }
  absl::Status Health() const override;

  // Synchronize, without counting it as a wait.
  absl::Status Drain() const { return Drain(CudaContext::Wait::kNotCounted); }

  cudaStream_t native() const { return native_; }
  const CudaContext& context() const { return *context_; }

 private:
  CudaStream(Device* device, CudaContext* context, cudaStream_t native, bool owned,
             const std::string& name)
      : device_(device), context_(context), native_(native), owned_(owned), name_(name) {}
  static absl::StatusOr<std::unique_ptr<CudaStream>> Finish(std::unique_ptr<CudaStream> stream);
  absl::Status Drain(CudaContext::Wait wait) const;
  cudaError_t Query() const { return cudaStreamQuery(native_); }

  Device* const device_;
  CudaContext* const context_;
  const cudaStream_t native_;
  const bool owned_;
  const std::string name_;
  cudaEvent_t end_ = nullptr;  // of what Synchronize waits for
};

}  // namespace zero
