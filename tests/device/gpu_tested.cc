// The contract suite's implementation: a CUDA device on the first GPU of this machine. A case in
// which a stream fails needs a process of its own: the GPU is lost to the process that saw it.
#include <deque>
#include <mutex>
#include <utility>

#include "device/cuda_device.h"
#include "device/cuda_status.h"
#include "device/cuda_stream.h"
#include "tests/device/device_test_util.h"
#include "tests/device/gpu_failure.h"

namespace zero::test {
namespace {

// Work that was given to CUDA, which on a GPU that has failed is never called: it stays here.
std::function<void()>* Keep(std::function<void()> function) {
  static std::mutex mutex;
  static auto* const kept = new std::deque<std::function<void()>>;
  std::lock_guard<std::mutex> lock(mutex);
  return &kept->emplace_back(std::move(function));
}

absl::Status RunOnCuda(const Stream& stream, std::function<void()> function) {
  const cudaError_t error = cudaLaunchHostFunc(
      NativeStream(stream),
      [](void* data) {
        auto* const called = static_cast<std::function<void()>*>(data);
        (*called)();
        *called = nullptr;
      },
      Keep(std::move(function)));
  return CudaStatus(error, "cudaLaunchHostFunc");
}

}  // namespace

const Implementation& Tested() {
  static const Implementation* const gpu = new Implementation{
      .begin = [] { return nullptr; },
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
            return CudaStatus(LaunchFailingKernel(NativeStream(stream)), "LaunchFailingKernel");
          },
      .failure = "cudaErrorAssert"};
  return *gpu;
}

}  // namespace zero::test
