// The seam to the machine: memory, streams, events and copies.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "device/buffer.h"
#include "device/event.h"
#include "device/host_ranges.h"
#include "device/memory.h"
#include "device/stream.h"

namespace zero {

enum class DeviceKind : uint8_t { kHost, kCuda };

// Memory of the host, for a device that is not. kPinned: copies reach it at full speed and without
// blocking the thread that enqueues them; ordinary memory where the system refuses to lock pages.
// kReached: pinned and, since kernels of the device read it, nothing else: a refusal is
// kResourceExhausted. kPageable: ordinary memory, which needs no leave of the system.
enum class HostMemory : uint8_t { kPinned, kReached, kPageable };

// What one rank computes on. Safe from several threads. Outlives its streams, events and buffers.
class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual DeviceKind kind() const = 0;
  // kResourceExhausted when the system gives no more streams.
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream(const std::string& name) = 0;
  // A stream of the host beside those of the device: kernels and operations enqueued on it run on
  // the host, in order, over memory of the host (AllocateHost). Events of this device are recorded
  // on it, and streams of both kinds wait for one another; but where the device is not the host, a
  // stream of the device that waits for one of the host goes on after a failure there as after a
  // success. Its device() is one of kind kHost. kUnimplemented where a GPU's driver is too old.
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateHostStream(const std::string& name) = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> CreateEvent() = 0;

  // `bytes` of device memory, 64-byte aligned, not initialised (0xFF, a NaN in every dtype, in
  // debug and sanitizer builds). 0 bytes give an empty Buffer. kResourceExhausted, with nothing
  // changed, names `what`, the request, the capacity and the table of categories.
  absl::StatusOr<Buffer> Allocate(int64_t bytes, MemoryCategory category, const std::string& what);
  // The same for memory of the host. It is exactly `bytes`. It is in the table, and counts against
  // the host capacity if it IsOffloaded, never against the capacity. On a device that is the host
  // it is ordinary memory.
  absl::StatusOr<Buffer> AllocateHost(int64_t bytes, MemoryCategory category,
                                      const std::string& what,
                                      HostMemory memory = HostMemory::kPinned);
  // Accounts for memory that somebody else owns; it must outlive the Buffer.
  Buffer Adopt(void* data, int64_t bytes, MemoryCategory category);

  // Enqueue: copy or fill `bytes`; kInvalidArgument if negative. The memory must live until
  // `stream` has run it; `to` and `from` must not overlap.
  virtual absl::Status Copy(const Stream& stream, void* to, const void* from, int64_t bytes) = 0;
  virtual absl::Status Fill(const Stream& stream, void* to, uint8_t value, int64_t bytes) = 0;

  // Bytes of copies that were enqueued so far between memory of AllocateHost of this device and any
  // other memory, adopted and unknown memory being the device's.
  int64_t bytes_to_device() const { return bytes_to_device_.load(std::memory_order_relaxed); }
  int64_t bytes_from_device() const { return bytes_from_device_.load(std::memory_order_relaxed); }

  // For a host thread that polls what this device computes, between two polls.
  virtual void Yield() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

  // Owned bytes that Allocate may hand out in all; negative: no limit. Set before use.
  void set_capacity(int64_t bytes) { capacity_ = bytes; }
  int64_t capacity() const { return capacity_; }
  // The same for what AllocateHost hands out in the categories of IsOffloaded. Each device counts
  // its own: what the ranks of a machine may have together is for the program to share out.
  void set_host_capacity(int64_t bytes) { host_capacity_ = bytes; }
  int64_t host_capacity() const { return host_capacity_; }
  MemoryTable memory() const { return ledger_.table(); }
  int64_t allocations() const { return ledger_.allocations(); }

  // What a program should say once about this device: what does not work as well as it could, and
  // why. One sentence each; empty if there is nothing.
  virtual std::vector<std::string> notes() const { return {}; }

  // Times that a thread of the host blocked for this device.
  int64_t host_waits() const { return host_waits_.load(std::memory_order_relaxed); }

 protected:
  Device() = default;
  virtual absl::StatusOr<void*> AllocateBytes(int64_t bytes) = 0;
  virtual void Free(void* data, int64_t bytes) = 0;
  virtual absl::StatusOr<void*> AllocateHostBytes(int64_t bytes, HostMemory memory) = 0;
  virtual void FreeHost(void* data, int64_t bytes) = 0;

  // Which way a copy crosses between the host and the device.
  enum class Way : uint8_t { kNone, kToDevice, kFromDevice };
  Way WayOf(const void* to, const void* from) const;
  // Of one that was enqueued.
  void CountCopy(Way way, int64_t bytes);

  std::atomic<int64_t> host_waits_{0};

 private:
  friend class Buffer;
  absl::Status Refused(const absl::Status& reason, int64_t bytes, MemoryCategory category,
                       const std::string& what) const;
  absl::Status DoesNotFit(int64_t bytes, MemoryCategory category, const std::string& what,
                          const char* limit, int64_t capacity, int64_t in_use) const;

  int64_t capacity_ = -1;
  int64_t host_capacity_ = -1;
  MemoryLedger ledger_;
  HostRanges host_ranges_;
  std::atomic<int64_t> bytes_to_device_{0};
  std::atomic<int64_t> bytes_from_device_{0};
};

}  // namespace zero
