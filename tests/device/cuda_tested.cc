// The contract suite's implementation: a CUDA device, on the cudart stand-in.
#include <atomic>

#include "device/cuda_device.h"
#include "device/cuda_status.h"
#include "device/cuda_stream.h"
#include "tests/device/device_test_util.h"
#include "tests/standin/cudart_test.h"

namespace zero::test {
namespace {

// Work that was given to CUDA. On a device that has ended it is never called, so that somebody else
// has to own it: a list that only grows. The order of its atomics orders nothing else.
struct Work {
  std::function<void()> function;
  Work* next = nullptr;
};
std::atomic<Work*> all_work{nullptr};

absl::Status RunOnCuda(const Stream& stream, std::function<void()> function) {
  Work* const work = new Work{std::move(function)};
  work->next = all_work.load(std::memory_order_relaxed);
  while (!all_work.compare_exchange_weak(work->next, work, std::memory_order_relaxed)) {
  }
  const cudaError_t error = cudaLaunchHostFunc(
      NativeStream(stream),
      [](void* data) {
        Work* const called = static_cast<Work*>(data);
        called->function();
        called->function = nullptr;
      },
      work);
  return CudaStatus(error, "cudaLaunchHostFunc");
}

}  // namespace

const Implementation& Tested() {
  static const Implementation* const cuda = new Implementation{
      .begin = [] { return std::make_shared<standin::CudartScope>(); },
      .make = [](int64_t capacity) -> std::unique_ptr<Device> {
        auto device = CudaDevice::Create({.capacity = capacity});
        REQUIRE_OK(device.status());
        return *std::move(device);
      },
      .run = RunOnCuda,
      .block = [](const Stream& stream,
                  Door& door) { return RunOnCuda(stream, [&door] { door.Pass(); }); },
      .fail =
          [](const Stream& stream) {
            Operation fails;
            fails.name = "fails";
            fails.run = [] { return absl::DataLossError("planted"); };
            return CudaStatus(standin::EnqueueOperation(NativeStream(stream), std::move(fails)),
                              "EnqueueOperation");
          },
      .failure = "cudaErrorLaunchFailure"};
  return *cuda;
}

}  // namespace zero::test
