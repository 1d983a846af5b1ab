// A stand-in for the CUDA runtime, for machines without a GPU: it defines the functions of cudart
// that this project calls, on the host stream engine. Programs link its objects in place of cudart.
//
// Streams are asynchronous, memory of a device is memory of the host, and everything that CUDA
// leaves undefined, or silently ignores, is a violation: it is recorded, and the call fails.
// Nothing here orders two threads by chance, so that ThreadSanitizer sees every missing event: what
// a stream did is seen after cudaEventQuery said that it is over, not after cudaStreamQuery on a
// healthy device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/operation.h"
#include "device/scheduler.h"

namespace zero::standin {

struct CudartOptions {
  int devices = 1;
  int64_t total_bytes = int64_t{1} << 36;  // of each device
  int64_t used_bytes = 0;                  // of each, by other processes
  int64_t pinnable_bytes = -1;             // that cudaHostAlloc gives in all; negative: no limit
  // What every call returns where no GPU can be used (cudaErrorInsufficientDriver, ...).
  cudaError_t absence = cudaSuccess;
  int driver_version = CUDART_VERSION;
  bool wait_value = true;  // the driver has cuStreamWaitValue32
  // A stream that has waited that long for a value ends its device, as a violation.
  double wait_value_seconds = 60;
  // By device; those without an entry have "0000:01:00.0", "0000:02:00.0", ...
  std::vector<std::string> bus_ids = {};
  // Runs the streams; null: a ThreadScheduler. Outlives the next Reset.
  Scheduler* scheduler = nullptr;
  // Called, with no lock held, whenever a query is about to answer that something is not ready.
  std::function<void()> not_ready = {};
  // Operations begin up to this many microseconds late, each by an amount of its own that the seed
  // decides.
  int delay_us = 0;
  uint64_t seed = 1;
};

// Forgets streams, events, memory, faults, violations and counts. Streams that are left are drained
// first.
void Reset(CudartOptions options = {});

// --- What kernels and collectives are enqueued with ---

// `body` runs in stream order, like a kernel: the stream's device must be current. What it throws
// ends the device like a fault in a kernel.
cudaError_t EnqueueKernel(cudaStream_t stream, const char* name, std::function<void()> body);

// The operation runs in stream order, when it is ready. If it fails, the device ends. On a device
// that has ended it is skipped.
cudaError_t EnqueueOperation(cudaStream_t stream, Operation operation);

// --- Faults ---

// The call of `function` ("cudaMalloc", ...; "": of any that can fail) after the next `n` returns
// `error`, once. Functions that release something release it all the same.
void FailCall(const std::string& function, int64_t n, cudaError_t error);
// Whether no such failure is outstanding.
bool FaultsAreUsedUp();
// Takes back those that are.
void ForgetFaults();
// Calls since Reset of `function`; "": of all that can fail.
int64_t Calls(const std::string& function = "");
// Functions called since Reset that can fail, sorted.
std::vector<std::string> CalledFunctions();

// Ends the device at once, or after `n` more of its operations: those not begun are skipped, events
// are reached, and every call from then on returns `error`.
void EndDevice(int device, cudaError_t error);
void EndDeviceAfter(int device, int64_t n, cudaError_t error);
// What ended the device, if an operation did: its name and error.
std::string EndOf(int device);

// --- What tests ask ---

struct Live {
  int64_t allocations = 0;  // device memory
  int64_t bytes = 0;
  int64_t host_allocations = 0;  // pinned
  int64_t host_bytes = 0;
  int64_t streams = 0;
  int64_t events = 0;
  bool operator==(const Live&) const = default;
};
Live LiveObjects();

// Copies since Reset from or to memory that is not pinned: on a GPU these may block the caller.
int64_t PageableCopies();

// Every violation since Reset, or since the last TakeViolations.
std::vector<std::string> Violations();
std::vector<std::string> TakeViolations();

}  // namespace zero::standin
