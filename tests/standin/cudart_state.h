// The books of the cudart stand-in.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/standin/cudart.h"
#include "tests/standin/quiet_lock.h"

namespace zero::standin {

// One recording of an event.
struct RecordedPoint : Gate {
  bool reached = false;  // with mutex held
};

struct DeviceBooks {
  int64_t used = 0;
  // Read by streams before each operation: relaxed, and of no lock.
  std::atomic<int> ended{cudaSuccess};
  std::atomic<int64_t> operations_left{-1};  // before it ends; 0, negative: no end
  cudaError_t planned_end = cudaSuccess;
  std::string reason;
  // Of operations that may be waiting: they are woken when the device ends.
  std::set<std::weak_ptr<Gate>, std::owner_less<std::weak_ptr<Gate>>> gates;
};

struct StreamBooks {
  int device = 0;
  uint64_t number = 0;
  std::unique_ptr<OperationQueue> queue;
  std::atomic<int64_t> pushed{0};
  std::atomic<int64_t> begun{0};
  std::atomic<int64_t> done{0};
  std::atomic<bool> working{false};  // on anything but the recording of an event
};

struct EventBooks {
  int device = 0;
  RecordedPoint* point = nullptr;  // null: never recorded
};

struct MemoryBooks {
  int64_t bytes = 0;
  int device = 0;
  bool host = false;
  uint64_t number = 0;  // never used again: an address can be
};

inline constexpr std::align_val_t kMemoryAlignment{256};

// Where a range of bytes lies.
struct Place {
  bool known = false;  // memory of a device, or pinned
  bool fits = true;    // all of it in one allocation
  int device = 0;
  bool host = true;
  uint64_t number = 0;
};

// Everything is guarded by `mutex`, taken as a QuietLock, except what is atomic.
struct State {
  std::mutex mutex;
  CudartOptions options;
  ThreadScheduler threads;
  std::vector<std::unique_ptr<DeviceBooks>> devices;
  std::map<uintptr_t, std::unique_ptr<StreamBooks>> streams;  // by handle, never used again
  std::map<int, std::unique_ptr<StreamBooks>> default_streams;
  std::map<uintptr_t, EventBooks> events;
  // Kept until Reset, so that nobody has to count who uses them: the counter would order threads.
  std::vector<std::unique_ptr<RecordedPoint>> points;
  std::map<uintptr_t, MemoryBooks> memory;  // by address
  int64_t pinned = 0;
  uintptr_t next_handle = 0x10000;
  uint64_t next_number = 1;
  std::map<std::string, int64_t> calls;
  int64_t all_calls = 0;
  std::vector<std::pair<std::string, std::pair<int64_t, cudaError_t>>> faults;
  std::vector<std::string> violations;
  // By number of the allocation: waits that read it now, and what was freed meanwhile, which the
  // last of them gives back.
  std::map<uint64_t, int> awaited;
  std::map<uint64_t, void*> freed_awaited;
  int64_t pageable_copies = 0;

  Place Find(const void* data, int64_t bytes) const;
  DeviceBooks* device(int id) const;  // null if there is none
  cudaError_t Violation(std::string text, cudaError_t error);
};
State& Books();

// A stream's books; null, and a violation, for a handle that is none (any more). Null handles are
// the current device's default stream.
StreamBooks* FindStream(const char* function, cudaStream_t stream);

// Appends to the stream. `operation` runs or is skipped by the state of the device.
void Push(StreamBooks* stream, Operation operation);

// The device that is current in this thread.
int& CurrentDevice();
// Whether this thread is inside an operation of a stream, where CUDA may not be called.
bool& InsideOperation();

cudaError_t Ended(int device);
void End(int device, cudaError_t error, const std::string& reason);

// Counts a call; what it must return before it does anything: cudaSuccess, a fault, or the absence
// of a driver.
cudaError_t Admit(const char* function);
// Leaves the error for cudaGetLastError.
cudaError_t Leave(cudaError_t error);

template <class Body>
cudaError_t Call(const char* function, Body&& body) {
  const cudaError_t refused = Admit(function);
  return Leave(refused != cudaSuccess ? refused : body());
}

// For functions that release something: they do that although they fail.
template <class Body>
cudaError_t Release(const char* function, Body&& body) {
  const cudaError_t refused = Admit(function);
  const cudaError_t released = body();
  return Leave(refused != cudaSuccess ? refused : released);
}

}  // namespace zero::standin
