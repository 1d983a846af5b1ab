// Events of a CUDA device. Not for users: it names the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "device/cuda_context.h"
#include "device/cuda_host_stream.h"
#include "device/event.h"
#include "device/host_stream.h"
#include "device/operation.h"

namespace zero {

// CUDA's event, and how many streams of the host have yet to find it reached: until none has, it is
// not recorded again.
struct CudaPoint {
  cudaEvent_t event = nullptr;
  // Changed and read without an order of their own: a lock would put streams in order by chance,
  // and ThreadSanitizer would miss an event that was forgotten.
  std::atomic<int> waits{0};

  bool held() const { return waits.load(std::memory_order_relaxed) != 0; }
};

// The points of one device, used again and again: as many as its events and the waits of its host
// streams held at the same time. Outlives its streams and events. Safe from several threads.
class CudaPoints {
 public:
  explicit CudaPoints(CudaContext* context) : context_(context) {}
  ~CudaPoints();

  // One that nobody holds, made if there is none.
  absl::StatusOr<CudaPoint*> Take();
  // Streams may still hold it.
  void Return(CudaPoint* point);

 private:
  CudaContext* const context_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<CudaPoint>> all_;
  std::vector<CudaPoint*> returned_;
};

class CudaEvent : public Event {
 public:
  static absl::StatusOr<std::unique_ptr<Event>> Create(CudaContext* context, CudaPoints* points);
  ~CudaEvent() override;

  // kInvalidArgument for a stream of another GPU, or of the host beside another device.
  absl::Status Record(const Stream& stream) override;
  bool recorded() const override { return recorded_; }
  bool Reached() const override;
  absl::Status Synchronize(absl::Duration timeout) const override;

  // Makes `stream`, which is one of `context`, wait for the point. There is one.
  absl::Status HoldBack(CudaContext* context, cudaStream_t stream) const;
  // Not null if the point lies in a stream of the host.
  const HostEvent* host_event() const { return on_host_ ? host_event_.get() : nullptr; }
  // If it lies in one of the GPU: the operation with which a stream of the host waits for it. It
  // has the GPU's failure.
  Operation WaitOnHost() const;

 private:
  CudaEvent(CudaContext* context, CudaPoints* points, CudaPoint* point)
      : context_(context), points_(points), point_(point) {}
  absl::Status RecordOnHost(const CudaHostStream& stream);

  CudaContext* const context_;
  CudaPoints* const points_;
  CudaPoint* point_;
  bool recorded_ = false;
  bool on_host_ = false;  // where it was recorded last
  // Of that recording in a stream of the host:
  std::unique_ptr<HostEvent> host_event_;
  const CudaHostSide* side_ = nullptr;
  const uint32_t* place_ = nullptr;
  uint32_t value_ = 0;
};

}  // namespace zero
