#include "device/cuda_memory.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "device/host_memory.h"
#include "device/status.h"

namespace zero {
namespace {

std::string LockedMemoryLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "none" : absl::StrCat(limit.rlim_cur, " bytes");
}

}  // namespace

absl::Status CudaMemory::Initialise() {
  if (!kPoison) return absl::OkStatus();
  ZERO_ASSIGN_OR_RETURN(poison_, CudaStream::Create(device_, context_, "poison"));
  return absl::OkStatus();
}

// Over when it returns: no stream that uses the memory waits for this one.
absl::Status CudaMemory::Poison(void* data, int64_t bytes) {
  const absl::Status filled = context_->Call("cudaMemsetAsync", [&] {
    return cudaMemsetAsync(data, kPoisonByte, static_cast<size_t>(bytes), poison_->native());
  });
  return filled.ok() ? poison_->Drain() : filled;
}

absl::StatusOr<void*> CudaMemory::Allocate(int64_t bytes) {
  void* data = nullptr;
  const absl::Status allocated =
      context_->Call("cudaMalloc", [&] { return cudaMalloc(&data, static_cast<size_t>(bytes)); });
  if (absl::IsResourceExhausted(allocated)) return OutOfMemory(allocated);
  ZERO_RETURN_IF_ERROR(allocated);
  if (kPoison) {
    const absl::Status poisoned = Poison(data, bytes);
    if (!poisoned.ok()) {
      context_->Release("cudaFree", [&] { return cudaFree(data); });
      return poisoned;
    }
  }
  return data;
}

absl::Status CudaMemory::OutOfMemory(const absl::Status& refusal) const {
  const absl::StatusOr<int64_t> free = FreeBytes();
  return absl::ResourceExhaustedError(
      absl::StrCat(refusal.message(), ", GPU ", context_->id(), " has ",
                   free.ok() ? absl::StrCat(*free) : "an unknown number of", " bytes free"));
}

void CudaMemory::Free(void* data, int64_t bytes) {
  if (kPoison) context_->CountDropped([&] { return Poison(data, bytes); });
  context_->Release("cudaFree", [&] { return cudaFree(data); });
}

absl::StatusOr<void*> CudaMemory::AllocatePageable(int64_t bytes) {
  ZERO_ASSIGN_OR_RETURN(void* const data, AllocateMemory(bytes));
  std::lock_guard<std::mutex> lock(mutex_);
  pageable_.insert(data);
  return data;
}

absl::StatusOr<void*> CudaMemory::AllocateHost(int64_t bytes, HostMemory memory) {
  if (memory == HostMemory::kPageable) return AllocatePageable(bytes);
  ZERO_RETURN_IF_ERROR(CheckHostMemory(bytes));
  void* data = nullptr;
  int error = 0;
  const absl::Status pinned = context_->Call("cudaHostAlloc", [&] {
    errno = 0;
    const cudaError_t code =
        cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocPortable);
    error = errno;
    return code;
  });
  if (pinned.ok()) {
    if (kPoison) std::memset(data, kPoisonByte, static_cast<size_t>(bytes));
    return data;
  }
  // On a GPU that is lost, memory would not help.
  ZERO_RETURN_IF_ERROR(context_->failure());
  const absl::Status refusal(
      pinned.code(), absl::StrCat("pinning ", bytes, " bytes of host memory: ", pinned.message(),
                                  ", errno ", error, " (", std::generic_category().message(error),
                                  "), limit of locked memory (ulimit -l) ", LockedMemoryLimit()));
  if (memory == HostMemory::kReached) {
    return absl::ResourceExhaustedError(
        absl::StrCat("kernels of the GPU read it, so that it must be pinned: ", refusal.message()));
  }
  ZERO_ASSIGN_OR_RETURN(data, AllocatePageable(bytes));
  std::lock_guard<std::mutex> lock(mutex_);
  if (pinning_refusal_.ok()) pinning_refusal_ = refusal;
  return data;
}

void CudaMemory::FreeHost(void* data, int64_t bytes) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (pageable_.erase(data) != 0) {
      FreeMemory(data, bytes);
      return;
    }
  }
  if (kPoison) std::memset(data, kPoisonByte, static_cast<size_t>(bytes));
  context_->Release("cudaFreeHost", [&] { return cudaFreeHost(data); });
}

absl::StatusOr<int64_t> CudaMemory::FreeBytes() const {
  size_t free = 0;
  size_t total = 0;
  ZERO_RETURN_IF_ERROR(
      context_->Call("cudaMemGetInfo", [&] { return cudaMemGetInfo(&free, &total); }));
  return static_cast<int64_t>(free);
}

absl::Status CudaMemory::pinning_refusal() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return pinning_refusal_;
}

}  // namespace zero
