#include "device/cuda_context.h"

#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "device/cuda_status.h"

namespace zero {
namespace {

// Between two polls of a stream: most waits are short, and none may keep a processor busy for long.
void Pause(std::chrono::steady_clock::duration waited) {
  if (waited < std::chrono::microseconds(50)) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace

CurrentCudaDevice::CurrentCudaDevice(int id) : error_(cudaGetDevice(&before_)) {
  if (error_ != cudaSuccess || before_ == id) return;
  call_ = "cudaSetDevice";
  error_ = cudaSetDevice(id);
  changed_ = error_ == cudaSuccess;
}

cudaError_t CurrentCudaDevice::Restore() {
  if (!changed_) return cudaSuccess;
  changed_ = false;
  return cudaSetDevice(before_);
}

CudaContext::Result CudaContext::Make(const char* name, bool always,
                                      absl::FunctionRef<cudaError_t()> call) {
  const cudaError_t before = cudaPeekAtLastError();
  CurrentCudaDevice current(id_);
  Result result{current.error(), current.call()};
  if (result.code == cudaSuccess) {
    result = {call(), name};
  } else if (always) {
    (void)call();
  }
  if (current.Restore() != cudaSuccess) dropped_errors_.fetch_add(1, std::memory_order_relaxed);
  if (before == cudaSuccess && cudaPeekAtLastError() != cudaSuccess) (void)cudaGetLastError();
  return result;
}

void CudaContext::Release(const char* name, absl::FunctionRef<cudaError_t()> call) {
  CountDropped([&] {
    const Result result = Make(name, /*always=*/true, call);
    return LosesContext(result.code) ? Fail(result) : CudaStatus(result.code, result.call);
  });
}

absl::Status CudaContext::Call(const char* name, absl::FunctionRef<cudaError_t()> call) {
  const Result result = Make(name, /*always=*/false, call);
  return LosesContext(result.code) ? Fail(result) : CudaStatus(result.code, result.call);
}

absl::StatusOr<bool> CudaContext::Poll(const char* name, absl::FunctionRef<cudaError_t()> query) {
  const Result result = Make(name, /*always=*/false, query);
  if (result.code == cudaSuccess) return true;
  if (result.code == cudaErrorNotReady) return false;
  return Fail(result);
}

absl::Status CudaContext::Await(const char* name, absl::FunctionRef<cudaError_t()> query,
                                absl::Duration timeout, Wait wait) {
  const auto start = std::chrono::steady_clock::now();
  int refused = 0;
  while (true) {
    const absl::StatusOr<bool> over = Poll(name, query);
    if (over.ok() && *over) return failure();
    // One refused poll does not say that the work has ended. If the next is refused as well, no
    // poll ever will.
    refused = over.ok() ? 0 : refused + 1;
    if (refused == 2) return failure();
    if (wait == Wait::kCounted) {
      host_waits_->fetch_add(1, std::memory_order_relaxed);
      wait = Wait::kNotCounted;  // once
    }
    if (over.ok() && absl::FromChrono(std::chrono::steady_clock::now() - start) >= timeout) {
      return absl::DeadlineExceededError(
          absl::StrCat("work on GPU ", id_, " was not over after ", absl::FormatDuration(timeout)));
    }
    if (wait == Wait::kOfStream) {
      Pause(std::chrono::steady_clock::now() - start);
    } else {
      device_->Yield();
    }
  }
}

absl::Status CudaContext::failure() const {
  if (!failed_.load(std::memory_order_acquire)) return absl::OkStatus();
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

absl::Status CudaContext::Fail(const Result& result) {
  const absl::Status failure = CudaStatus(result.code, result.call);
  if (LosesContext(result.code)) lost_.store(true, std::memory_order_release);
  std::lock_guard<std::mutex> lock(mutex_);
  if (failure_.ok()) failure_ = failure;
  failed_.store(true, std::memory_order_release);
  return failure;
}

void CudaContext::CountDropped(absl::FunctionRef<absl::Status()> work) {
  const bool known = !failure().ok();
  if (!work().ok() && !known) dropped_errors_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace zero
