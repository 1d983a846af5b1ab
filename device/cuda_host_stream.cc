#include "device/cuda_host_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/cuda_event.h"
#include "device/cuda_status.h"
#include "device/status.h"

namespace zero {
namespace {

constexpr size_t kCounterBytes = CudaHostCounter::kPlaces * sizeof(uint32_t);
// Close to where they go round, so that no run depends on their not doing so.
constexpr uint32_t kFirstValue = ~uint32_t{0} - 8;

// The first version of the function with its present meaning.
constexpr unsigned int kWaitVersion = 11070;

HostDevice::Options HostOptions(ThreadPool* pool, const std::shared_ptr<Scheduler>& scheduler) {
  HostDevice::Options options;
  options.pool = pool;
  options.scheduler = scheduler;
  return options;
}

}  // namespace

CudaHostSide::CudaHostSide(CudaContext* context, std::atomic<int64_t>* host_waits, ThreadPool* pool,
                           OperationHook hook)
    : context_(context),
      host_waits_(host_waits),
      scheduler_(std::make_shared<ThreadScheduler>()),
      hook_(std::move(hook)),
      device_(HostOptions(pool, scheduler_)) {}

CudaHostSide::~CudaHostSide() {
  for (const auto& counter : counters_) {
    context_->Release("cudaFreeHost", [&] { return cudaFreeHost(counter->places); });
  }
}

absl::Status CudaHostSide::FindWait() {
  if (wait_ != nullptr) return absl::OkStatus();
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const absl::Status asked = context_->Call("cudaGetDriverEntryPointByVersion", [&] {
    return cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &found, kWaitVersion,
                                            cudaEnableDefault, &result);
  });
  ZERO_RETURN_IF_ERROR(asked);
  if (found == nullptr || result != cudaDriverEntryPointSuccess) {
    return absl::UnimplementedError(
        "the driver of this GPU has no cuStreamWaitValue32 of CUDA 11.7, with which a GPU waits "
        "for "
        "the host: nothing can be offloaded to the host without a newer driver");
  }
  wait_ = reinterpret_cast<PFN_cuStreamWaitValue32_v11070>(found);
  return absl::OkStatus();
}

absl::StatusOr<CudaHostCounter*> CudaHostSide::Counter() {
  if (!free_.empty()) {
    CudaHostCounter* const counter = free_.back();
    free_.pop_back();
    return counter;
  }
  void* data = nullptr;
  ZERO_RETURN_IF_ERROR(context_->Call(
      "cudaHostAlloc", [&] { return cudaHostAlloc(&data, kCounterBytes, cudaHostAllocPortable); }));
  auto counter = std::make_unique<CudaHostCounter>();
  counter->places = static_cast<uint32_t*>(data);
  counter->recorded = kFirstValue;
  std::fill_n(counter->places, CudaHostCounter::kPlaces, kFirstValue);
  return counters_.emplace_back(std::move(counter)).get();
}

void CudaHostSide::Return(CudaHostCounter* counter) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(counter);
}

absl::StatusOr<std::unique_ptr<Stream>> CudaHostSide::CreateStream(const std::string& name) {
  ZERO_ASSIGN_OR_RETURN(auto queue, NewQueue(scheduler_.get(), name, hook_));
  std::lock_guard<std::mutex> lock(mutex_);
  ZERO_RETURN_IF_ERROR(FindWait());
  const absl::StatusOr<CudaHostCounter*> counter = Counter();
  if (!counter.ok()) {
    return absl::Status(counter.status().code(),
                        absl::StrCat("stream '", name, "' of the host needs ", kCounterBytes,
                                     " bytes of pinned memory: ", counter.status().message()));
  }
  return std::make_unique<CudaHostStream>(this, *counter, name, std::move(queue));
}

absl::Status CudaHostSide::HoldBack(CudaContext* context, cudaStream_t stream,
                                    const uint32_t* place, uint32_t value) const {
  // Pinned memory has the same address on the host and on every GPU, and codes of the driver have
  // the numbers of the runtime's.
  return context->Call("cuStreamWaitValue32", [&] {
    return static_cast<cudaError_t>(
        wait_(stream, reinterpret_cast<CUdeviceptr>(place), value, CU_STREAM_WAIT_VALUE_GEQ));
  });
}

absl::Status CudaHostStream::Wait(const Event& event) const {
  const auto* const cuda_event = dynamic_cast<const CudaEvent*>(&event);
  if (cuda_event == nullptr || cuda_event->host_event() != nullptr) {
    return stream_.Wait(cuda_event == nullptr ? event : *cuda_event->host_event());
  }
  if (!cuda_event->recorded()) {
    return absl::FailedPreconditionError(
        absl::StrCat("stream '", name(), "' would wait for an event that was never recorded"));
  }
  return Enqueue(cuda_event->WaitOnHost());
}

}  // namespace zero
