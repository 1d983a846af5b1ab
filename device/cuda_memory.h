// Memory of a GPU, and memory of the host that it reaches.
#pragma once

#include <memory>
#include <mutex>
#include <set>

#include "absl/status/statusor.h"
#include "device/cuda_context.h"
#include "device/cuda_stream.h"

namespace zero {

// Safe from several threads.
class CudaMemory {
 public:
  CudaMemory(Device* device, CudaContext* context) : device_(device), context_(context) {}
  // Before use.
  absl::Status Initialise();

  absl::StatusOr<void*> Allocate(int64_t bytes);
  void Free(void* data, int64_t bytes);
  absl::StatusOr<void*> AllocateHost(int64_t bytes, HostMemory memory);
  void FreeHost(void* data, int64_t bytes);
  absl::StatusOr<int64_t> FreeBytes() const;
  absl::Status pinning_refusal() const;

 private:
  absl::StatusOr<void*> AllocatePageable(int64_t bytes);
  absl::Status Poison(void* data, int64_t bytes);
  absl::Status OutOfMemory(const absl::Status& refusal) const;

  Device* const device_;
  CudaContext* const context_;
  std::unique_ptr<CudaStream> poison_;  // null unless memory is poisoned
  mutable std::mutex mutex_;
  std::set<void*> pageable_;  // what was not to be pinned, or could not be
  absl::Status pinning_refusal_;
};

}  // namespace zero
