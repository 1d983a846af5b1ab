#include "device/cuda_event.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/cuda_stream.h"
#include "device/status.h"

namespace zero {

CudaPoints::~CudaPoints() {
  for (const auto& point : all_) {
    context_->Release("cudaEventDestroy", [&] { return cudaEventDestroy(point->event); });
  }
}

absl::StatusOr<CudaPoint*> CudaPoints::Take() {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto idle = std::find_if(returned_.begin(), returned_.end(),
                                 [](const CudaPoint* point) { return !point->held(); });
  if (idle != returned_.end()) {
    CudaPoint* const point = *idle;
    returned_.erase(idle);
    return point;
  }
  auto point = std::make_unique<CudaPoint>();
  ZERO_RETURN_IF_ERROR(context_->Call("cudaEventCreateWithFlags", [&] {
    return cudaEventCreateWithFlags(&point->event, cudaEventDisableTiming);
  }));
  return all_.emplace_back(std::move(point)).get();
}

void CudaPoints::Return(CudaPoint* point) {
  std::lock_guard<std::mutex> lock(mutex_);
  returned_.push_back(point);
}

absl::StatusOr<std::unique_ptr<Event>> CudaEvent::Create(CudaContext* context, CudaPoints* points) {
  ZERO_ASSIGN_OR_RETURN(CudaPoint* const point, points->Take());
  return std::unique_ptr<Event>(new CudaEvent(context, points, point));
}

CudaEvent::~CudaEvent() { points_->Return(point_); }

absl::Status CudaEvent::Record(const Stream& stream) {
  const auto* const host_stream = dynamic_cast<const CudaHostStream*>(&stream);
  if (host_stream != nullptr && host_stream->side()->context() == context_) {
    return RecordOnHost(*host_stream);
  }
  const auto* cuda_stream = dynamic_cast<const CudaStream*>(&stream);
  if (cuda_stream == nullptr || cuda_stream->context().id() != context_->id()) {
    return absl::InvalidArgumentError(absl::StrCat("an event of GPU ", context_->id(),
                                                   " cannot be recorded in stream '", stream.name(),
                                                   "', which is not of that GPU"));
  }
  // Streams of the host wait for the point that was recorded when they were made to.
  CudaPoint* point = point_;
  if (point->held()) {
    ZERO_ASSIGN_OR_RETURN(point, points_->Take());
  }
  const absl::Status recorded = context_->Call(
      "cudaEventRecord", [&] { return cudaEventRecord(point->event, cuda_stream->native()); });
  if (!recorded.ok()) {
    if (point != point_) points_->Return(point);
    return recorded;
  }
  if (point != point_) points_->Return(std::exchange(point_, point));
  recorded_ = true;
  on_host_ = false;
  return absl::OkStatus();
}

absl::Status CudaEvent::RecordOnHost(const CudaHostStream& stream) {
  if (host_event_ == nullptr) {
    host_event_ =
        std::make_unique<HostEvent>(stream.side()->scheduler(), stream.side()->host_waits());
  }
  side_ = stream.side();
  value_ = ++stream.counter()->recorded;
  place_ = stream.counter()->Place(value_);
  recorded_ = true;
  on_host_ = true;
  // First the host's own point: who has seen the GPU go on finds the event reached.
  Operation record = host_event_->NewPoint(stream.name());
  const auto advance = [place = stream.counter()->Place(value_), value = value_] {
    CudaHostCounter::Reach(place, value);
  };
  record.run = [run = std::move(record.run), advance]() mutable {
    const absl::Status status = run();
    advance();
    return status;
  };
  record.skip = [skip = std::move(record.skip), advance](const absl::Status& reason) mutable {
    skip(reason);
    advance();
  };
  return stream.Enqueue(std::move(record));
}

absl::Status CudaEvent::HoldBack(CudaContext* context, cudaStream_t stream) const {
  if (on_host_) return side_->HoldBack(context, stream, place_, value_);
  return context->Call("cudaStreamWaitEvent",
                       [&] { return cudaStreamWaitEvent(stream, point_->event, 0); });
}

Operation CudaEvent::WaitOnHost() const {
  point_->waits.fetch_add(1, std::memory_order_relaxed);
  const auto await = [context = context_, point = point_] {
    const absl::Status status = context->Await(
        "cudaEventQuery", [&] { return cudaEventQuery(point->event); }, absl::InfiniteDuration(),
        CudaContext::Wait::kOfStream);
    point->waits.fetch_sub(1, std::memory_order_release);
    return status;
  };
  Operation wait;
  wait.name = "wait";
  wait.run = await;
  // A failed stream still keeps the order, as HostStream::Wait does.
  wait.skip = [await](const absl::Status&) { (void)await(); };
  return wait;
}

bool CudaEvent::Reached() const {
  if (!recorded_) return false;
  if (on_host_) return host_event_->Reached();
  const absl::StatusOr<bool> over =
      context_->Poll("cudaEventQuery", [&] { return cudaEventQuery(point_->event); });
  return over.ok() ? *over : context_->lost();
}

absl::Status CudaEvent::Synchronize(absl::Duration timeout) const {
  if (!recorded_) {
    return absl::FailedPreconditionError("waiting for an event that was never recorded");
  }
  if (on_host_) return host_event_->Synchronize(timeout);
  return context_->Await(
      "cudaEventQuery", [&] { return cudaEventQuery(point_->event); }, timeout,
      CudaContext::Wait::kCounted);
}

}  // namespace zero
