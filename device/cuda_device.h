// One NVIDIA GPU as a device. Builds without CUDA have these functions too; they refuse.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "device/device.h"
#include "device/scheduler.h"
#include "device/thread_pool.h"

namespace zero {

struct CudaProperties {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
  int64_t total_bytes = 0;
  std::string pci_bus_id;  // "0000:3b:00.0": the same card has the same one in every process
};

// What a rank computes on: one object for each rank, several of which may share a GPU.
//
// Calls are made from any thread, and leave the thread's current GPU as it was. Streams are created
// so that they do not wait for the default stream. An operation that fails on a GPU ends all work
// of this process there: then Health and Synchronize of every stream, and Synchronize of every
// event, return the first such error (kInternal, with the name of the CUDA call that met it).
class CudaDevice : public Device {
 public:
  struct Options {
    int id = 0;             // as CUDA numbers the GPUs that this process sees
    int64_t capacity = -1;  // bytes; negative: what the card has free
    // Of its streams of the host, as HostDevice::Options has them:
    ThreadPool* host_pool = nullptr;
    OperationHook host_hook = nullptr;
  };

  // kUnavailable without a driver or a GPU; kInvalidArgument for an id that is none; kUnimplemented
  // in a build without CUDA.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(const Options& options);
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create() { return Create(Options()); }

  DeviceKind kind() const final { return DeviceKind::kCuda; }
  virtual int id() const = 0;
  virtual const CudaProperties& properties() const = 0;
  // What the card has free now, all processes taken together.
  virtual absl::StatusOr<int64_t> FreeBytes() const = 0;

  // A stream that the trainer owns, a cudaStream_t (null: the default stream). It must outlive the
  // result, which waits for its work when destroyed and leaves it alive. kInvalidArgument if it
  // belongs to another GPU.
  virtual absl::StatusOr<std::unique_ptr<Stream>> WrapStream(void* cuda_stream,
                                                             const std::string& name) = 0;

  // AllocateHost of kPinned gives ordinary memory where the system refuses: the same results, but
  // slower copies, which may block the thread that enqueues them. Why the first time that happened:
  // bytes, CUDA's error, errno and the limit of locked memory. OK: it did not.
  virtual absl::Status pinning_refusal() const = 0;

  // Errors that destructors met while the device had not failed otherwise.
  virtual int64_t dropped_errors() const = 0;
};

// GPUs that this process sees. kUnavailable without a driver, kUnimplemented in a build without
// CUDA.
absl::StatusOr<int> CudaDeviceCount();

}  // namespace zero
