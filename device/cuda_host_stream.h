// Streams of the host beside those of a GPU. Not for users: it names the CUDA runtime.
#pragma once

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/cuda_context.h"
#include "device/host_device.h"
#include "device/host_stream.h"

namespace zero {

// How far one stream of the host has come, in pinned memory, where streams of a GPU wait for it.
// Only one stream at a time has it. Points have rising values, which go round: nothing waits for
// one that lies 2^31 back. Each has a place, and many have places of their own, so that who waits
// for one is ordered after that one and not, by chance, after later ones: see QuietLock in
// tests/standin.
struct CudaHostCounter {
  static constexpr uint32_t kPlaces = 1024;  // a page

  uint32_t* places = nullptr;
  uint32_t recorded = 0;  // the value of the last point that was enqueued

  uint32_t* Place(uint32_t value) const { return places + value % kPlaces; }
  // The stream has come to the point, and what it did before is seen by whoever sees the value.
  static void Reach(uint32_t* place, uint32_t value) {
    std::atomic_ref<uint32_t>(*place).store(value, std::memory_order_release);
  }
};

// What the host streams of one CudaDevice share: a host device that runs them, and what streams of
// the GPU wait for them with. Outlives them. Safe from several threads.
class CudaHostSide {
 public:
  CudaHostSide(CudaContext* context, std::atomic<int64_t>* host_waits, ThreadPool* pool,
               OperationHook hook);
  ~CudaHostSide();
  CudaHostSide(const CudaHostSide&) = delete;
  CudaHostSide& operator=(const CudaHostSide&) = delete;

  // kUnimplemented where the driver cannot let a GPU wait for the host, kResourceExhausted where
  // not even the few bytes of a counter can be pinned.
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(const std::string& name);

  HostDevice& device() { return device_; }
  CudaContext* context() const { return context_; }
  Scheduler* scheduler() const { return scheduler_.get(); }
  std::atomic<int64_t>* host_waits() const { return host_waits_; }

  // Holds `stream`, which is one of `context`, back until the point with this place and value.
  // There is a stream of the host already.
  absl::Status HoldBack(CudaContext* context, cudaStream_t stream, const uint32_t* place,
                        uint32_t value) const;

  void Return(CudaHostCounter* counter);

 private:
  absl::Status FindWait();                     // with mutex_ held
  absl::StatusOr<CudaHostCounter*> Counter();  // likewise

  CudaContext* const context_;
  std::atomic<int64_t>* const host_waits_;
  const std::shared_ptr<Scheduler> scheduler_;
  const OperationHook hook_;
  HostDevice device_;
  std::mutex mutex_;
  PFN_cuStreamWaitValue32_v11070 wait_ = nullptr;  // set once
  // Kept to the end: a stream of the GPU may come to its wait when that of the host has gone.
  std::vector<std::unique_ptr<CudaHostCounter>> counters_;
  std::vector<CudaHostCounter*> free_;
};

class CudaHostStream : public Stream {
 public:
  CudaHostStream(CudaHostSide* side, CudaHostCounter* counter, const std::string& name,
                 std::unique_ptr<OperationQueue> queue)
      : counter_(counter, Returner{side}),
        side_(side),
        stream_(&side->device(), name, std::move(queue), side->scheduler(), side->host_waits()) {}

  Device& device() const override { return stream_.device(); }
  const std::string& name() const override { return stream_.name(); }
  using Stream::Enqueue;
  absl::Status Enqueue(Operation operation) const override {
    return stream_.Enqueue(std::move(operation));
  }
  absl::Status Wait(const Event& event) const override;
  absl::Status Synchronize() const override { return stream_.Synchronize(); }
  absl::Status Health() const override { return stream_.Health(); }

  CudaHostSide* side() const { return side_; }
  CudaHostCounter* counter() const { return counter_.get(); }

 private:
  struct Returner {
    CudaHostSide* side;
    void operator()(CudaHostCounter* counter) const { side->Return(counter); }
  };

  const std::unique_ptr<CudaHostCounter, Returner> counter_;  // longer than what advances it
  CudaHostSide* const side_;
  const HostStream stream_;
};

}  // namespace zero
