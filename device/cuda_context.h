// One GPU as its device, streams and events share it: calls, polls, and the first failure.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "device/device.h"

namespace zero {

// Makes a GPU current in this thread, and puts back the one that was.
class CurrentCudaDevice {
 public:
  explicit CurrentCudaDevice(int id);
  ~CurrentCudaDevice() { (void)Restore(); }
  // Before the end of its life, to see whether it works.
  cudaError_t Restore();
  CurrentCudaDevice(const CurrentCudaDevice&) = delete;
  CurrentCudaDevice& operator=(const CurrentCudaDevice&) = delete;

  cudaError_t error() const { return error_; }
  const char* call() const { return call_; }  // that returned it

 private:
  int before_ = -1;
  bool changed_ = false;
  cudaError_t error_;
  const char* call_ = "cudaGetDevice";
};

// Safe from several threads. The trainer's errors stay the trainer's: what our own calls leave for
// cudaGetLastError is taken out again, unless an error that nobody has asked about was there
// before. (A poll can turn that one into cudaErrorNotReady; it cannot make it go away.)
class CudaContext {
 public:
  CudaContext(Device* device, int id, std::atomic<int64_t>* host_waits)
      : device_(device), id_(id), host_waits_(host_waits) {}

  int id() const { return id_; }

  // Makes `call`, the CUDA function `name`, with this GPU current.
  absl::Status Call(const char* name, absl::FunctionRef<cudaError_t()> call);

  // The same for what destructors release: made although the GPU could not be made current, and an
  // error is only counted.
  void Release(const char* name, absl::FunctionRef<cudaError_t()> call);

  // Asks once whether work is over. An error is the device's failure from then on.
  absl::StatusOr<bool> Poll(const char* name, absl::FunctionRef<cudaError_t()> query);

  // Polls until work is over, and returns the failure of the device if it has one.
  // kDeadlineExceeded after `timeout`: CUDA does not tell whether other work gets on.
  enum class Wait {
    kCounted,     // in Device::host_waits
    kNotCounted,  // of destructors
    kOfStream     // of a thread that runs a stream of the host: polled more often
  };
  absl::Status Await(const char* name, absl::FunctionRef<cudaError_t()> query,
                     absl::Duration timeout, Wait wait);

  // The first error that ended the GPU's work, or that a poll met.
  absl::Status failure() const;
  // Whether nothing runs any more on this GPU.
  bool lost() const { return lost_.load(std::memory_order_acquire); }

  // For destructors: an error is only counted, and not if the device has failed before.
  void CountDropped(absl::FunctionRef<absl::Status()> work);
  int64_t dropped_errors() const { return dropped_errors_.load(std::memory_order_relaxed); }

 private:
  struct Result {
    cudaError_t code;
    const char* call;
  };
  Result Make(const char* name, bool always, absl::FunctionRef<cudaError_t()> call);
  absl::Status Fail(const Result& result);

  Device* const device_;
  const int id_;
  std::atomic<int64_t>* const host_waits_;
  std::atomic<int64_t> dropped_errors_{0};
  std::atomic<bool> failed_{false};
  std::atomic<bool> lost_{false};
  mutable std::mutex mutex_;
  absl::Status failure_;
};

}  // namespace zero
