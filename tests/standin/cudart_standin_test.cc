// The stand-in itself: what it must refuse, and that it refuses nothing else.
#include <cudaTypedefs.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/standin/cudart_test.h"

namespace zero::standin {
namespace {

// The one violation that there was.
std::string TheViolation() {
  const std::vector<std::string> violations = TakeViolations();
  REQUIRE(violations.size() == 1);
  return violations[0];
}

cudaStream_t NewStream() {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  return stream;
}

cudaEvent_t NewEvent() {
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  return event;
}

uint8_t* NewMemory(size_t bytes) {
  void* data = nullptr;
  REQUIRE(cudaMalloc(&data, bytes) == cudaSuccess);
  return static_cast<uint8_t*>(data);
}

void Drain(cudaStream_t stream) {
  while (cudaStreamQuery(stream) == cudaErrorNotReady) std::this_thread::yield();
}

void Destroy(cudaStream_t stream) {
  Drain(stream);
  cudaStreamDestroy(stream);
}

TEST_CASE("Cudart stand-in: copies that CUDA leaves undefined are violations", "[standin]") {
  const CudartScope scope({.devices = 2});
  const cudaStream_t stream = NewStream();
  uint8_t* const memory = NewMemory(100);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  uint8_t* const elsewhere = NewMemory(100);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  std::vector<uint8_t> host(200);
  std::vector<uint8_t> more(200);

  CHECK(cudaMemcpyAsync(host.data(), more.data(), 10, cudaMemcpyDefault, stream) ==
        cudaErrorInvalidValue);
  CHECK_THAT(TheViolation(), ContainsSubstring("neither side is memory of a device"));
  CHECK(cudaMemcpyAsync(memory + 60, host.data(), 41, cudaMemcpyDefault, stream) ==
        cudaErrorInvalidValue);
  CHECK_THAT(TheViolation(), ContainsSubstring("past the end"));
  CHECK(cudaMemcpyAsync(memory, host.data(), 10, cudaMemcpyDeviceToHost, stream) ==
        cudaErrorInvalidValue);
  CHECK_THAT(TheViolation(), ContainsSubstring("kind"));
  CHECK(cudaMemcpyAsync(elsewhere, host.data(), 10, cudaMemcpyDefault, stream) ==
        cudaErrorInvalidValue);
  CHECK_THAT(TheViolation(), ContainsSubstring("neither side is of device 0"));
  CHECK(cudaMemsetAsync(elsewhere, 0, 10, stream) == cudaErrorInvalidValue);
  CHECK_THAT(TheViolation(), ContainsSubstring("memory of device 1"));
  CHECK(cudaMemsetAsync(host.data(), 0, 10, stream) == cudaErrorInvalidValue);
  CHECK_THAT(TheViolation(), ContainsSubstring("not pinned"));
  CHECK(cudaMemsetAsync(memory, 0, 101, stream) == cudaErrorInvalidValue);
  CHECK_THAT(TheViolation(), ContainsSubstring("past the end"));

  CHECK(cudaMemcpyAsync(memory + 60, host.data(), 40, cudaMemcpyHostToDevice, stream) ==
        cudaSuccess);
  CHECK(cudaMemcpyAsync(elsewhere, memory, 100, cudaMemcpyDefault, stream) == cudaSuccess);
  Destroy(stream);
  CHECK(PageableCopies() == 1);
  cudaFree(memory);
  cudaFree(elsewhere);
}

TEST_CASE("Cudart stand-in: memory freed while a copy is enqueued is a violation",
          "[standin][thread]") {
  const CudartScope scope;
  const cudaStream_t stream = NewStream();
  uint8_t* const memory = NewMemory(64);
  std::atomic<bool> open{false};
  EnqueueKernel(stream, "blocked", [&open] {
    while (!open) std::this_thread::yield();
  });
  CHECK(cudaMemsetAsync(memory, 1, 64, stream) == cudaSuccess);
  CHECK(cudaFree(memory) == cudaSuccess);
  open = true;
  Destroy(stream);
  CHECK_THAT(TheViolation(), ContainsSubstring("freed before it ran"));
}

TEST_CASE("Cudart stand-in: handles that were destroyed or never made are violations",
          "[standin]") {
  const CudartScope scope;
  const cudaStream_t stream = NewStream();
  const cudaEvent_t event = NewEvent();
  const cudaEvent_t live = NewEvent();
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  CHECK(cudaEventDestroy(event) == cudaSuccess);
  const cudaStream_t other = NewStream();
  CHECK(other != stream);
  int device = 0;
  CHECK(cudaStreamQuery(stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamGetDevice(stream, &device) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(live, stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamWaitEvent(stream, live, 0) == cudaErrorInvalidResourceHandle);
  CHECK(cudaMemcpyAsync(nullptr, nullptr, 1, cudaMemcpyDefault, stream) ==
        cudaErrorInvalidResourceHandle);
  CHECK(cudaMemsetAsync(nullptr, 0, 1, stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaLaunchHostFunc(
            stream, [](void*) {}, nullptr) == cudaErrorInvalidResourceHandle);
  CHECK(EnqueueKernel(stream, "k", [] {}) == cudaErrorInvalidResourceHandle);
  CHECK(EnqueueOperation(stream, Operation()) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventDestroy(event) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(event, other) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventQuery(event) == cudaErrorInvalidResourceHandle);
  CHECK(TakeViolations().size() == 13);
  CHECK(cudaFree(&device) == cudaErrorInvalidValue);
  CHECK(cudaFreeHost(&device) == cudaErrorInvalidValue);
  CHECK(cudaSetDevice(1) == cudaErrorInvalidDevice);
  CHECK(TakeViolations().size() == 3);
  CHECK(cudaFree(nullptr) == cudaSuccess);
  Destroy(other);
  cudaEventDestroy(live);
}

TEST_CASE("Cudart stand-in: events that were never recorded are violations where CUDA is silent",
          "[standin]") {
  const CudartScope scope({.devices = 2});
  const cudaStream_t stream = NewStream();
  const cudaEvent_t event = NewEvent();
  CHECK(cudaStreamWaitEvent(stream, event, 0) == cudaErrorInvalidValue);
  CHECK_THAT(TheViolation(), ContainsSubstring("never recorded"));
  CHECK(cudaEventQuery(event) == cudaErrorInvalidResourceHandle);
  CHECK_THAT(TheViolation(), ContainsSubstring("never recorded"));
  cudaSetDevice(1);
  const cudaStream_t far = NewStream();
  CHECK(cudaEventRecord(event, far) == cudaErrorInvalidResourceHandle);
  CHECK_THAT(TheViolation(), ContainsSubstring("an event of device 0 in a stream of device 1"));
  cudaSetDevice(0);
  CHECK(EnqueueKernel(far, "k", [] {}) == cudaErrorInvalidResourceHandle);
  CHECK_THAT(TheViolation(), ContainsSubstring("launch of k"));
  Destroy(stream);
  Destroy(far);
  cudaEventDestroy(event);
}

TEST_CASE(
    "Cudart stand-in: CUDA may not be called from inside a stream, nor a stream destroyed "
    "that still works",
    "[standin][thread]") {
  const CudartScope scope;
  const cudaStream_t stream = NewStream();
  std::atomic<int> inside{0};
  EnqueueKernel(stream, "calls", [&inside] { inside = cudaStreamQuery(nullptr); });
  Drain(stream);
  CHECK(inside == cudaErrorNotPermitted);
  CHECK_THAT(TheViolation(), ContainsSubstring("from inside"));
  std::atomic<bool> open{false};
  std::atomic<bool> ran{false};
  EnqueueKernel(stream, "blocked", [&open] {
    while (!open) std::this_thread::yield();
  });
  EnqueueKernel(stream, "later", [&ran] { ran = true; });
  std::thread opener([&open] { open = true; });
  if (cudaStreamQuery(stream) == cudaErrorNotReady) {
    cudaStreamDestroy(stream);
    // Unless it was quicker than this thread.
    for (const std::string& violation : TakeViolations()) {
      CHECK_THAT(violation, ContainsSubstring("not over"));
    }
  } else {
    cudaStreamDestroy(stream);
  }
  opener.join();
  CHECK(ran);
}

TEST_CASE("Cudart stand-in: the n-th call fails, of one kind or of all, once", "[standin]") {
  const CudartScope scope;
  FailCall("cudaMalloc", 1, cudaErrorInvalidValue);
  uint8_t* const first = NewMemory(8);
  void* second = nullptr;
  CHECK(cudaMalloc(&second, 8) == cudaErrorInvalidValue);
  CHECK(second == nullptr);
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess);
  uint8_t* const third = NewMemory(8);
  FailCall("", 1, cudaErrorNotSupported);
  // What releases does so although it fails.
  CHECK(cudaFree(first) == cudaSuccess);
  CHECK(cudaFree(third) == cudaErrorNotSupported);
  CHECK(Calls("cudaMalloc") == 3);
  CHECK(Calls("cudaFree") == 2);
  CHECK(Calls() == 5);
  CHECK(Calls("cudaEventQuery") == 0);
  CHECK(CalledFunctions() == std::vector<std::string>{"cudaFree", "cudaMalloc"});
  CHECK(FaultsAreUsedUp());
  CHECK(LiveObjects() == Live());
}

TEST_CASE("Cudart stand-in: a device that ends skips what is left and reaches its events",
          "[standin][thread]") {
  const CudartScope scope({.devices = 2});
  const cudaStream_t stream = NewStream();
  const cudaEvent_t event = NewEvent();
  std::atomic<int> ran{0};
  std::atomic<int> skipped{0};
  std::atomic<bool> enqueued{false};
  EnqueueKernel(stream, "fails", [&enqueued]() {
    while (!enqueued) std::this_thread::yield();
    throw std::runtime_error("out of bounds");
  });
  EnqueueKernel(stream, "later", [&ran] { ++ran; });
  Operation operation;
  operation.gate = std::make_shared<Gate>();
  operation.ready = [] { return false; };
  operation.run = [&ran] {
    ++ran;
    return absl::OkStatus();
  };
  operation.skip = [&skipped](const absl::Status& reason) {
    if (!reason.ok()) ++skipped;
  };
  CHECK(EnqueueOperation(stream, std::move(operation)) == cudaSuccess);
  CHECK(cudaEventRecord(event, stream) == cudaSuccess);
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  enqueued = true;
  cudaError_t query = cudaErrorNotReady;
  while (query == cudaErrorNotReady) query = cudaEventQuery(event);
  CHECK(query == cudaErrorLaunchFailure);
  CHECK(ran == 0);
  CHECK(skipped == 1);
  CHECK_THAT(EndOf(0), ContainsSubstring("fails: "));
  CHECK_THAT(EndOf(0), ContainsSubstring("out of bounds"));
  void* data = nullptr;
  CHECK(cudaMalloc(&data, 1) == cudaErrorLaunchFailure);
  CHECK(EnqueueKernel(stream, "k", [] {}) == cudaErrorLaunchFailure);
  CHECK(EnqueueOperation(stream, Operation()) == cudaErrorLaunchFailure);
  CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  CHECK(cudaStreamDestroy(stream) == cudaErrorLaunchFailure);
  CHECK(cudaEventDestroy(event) == cudaErrorLaunchFailure);
  // The other device lives.
  cudaSetDevice(1);
  CHECK(cudaMalloc(&data, 1) == cudaSuccess);
  CHECK(cudaFree(data) == cudaSuccess);
}

TEST_CASE("Cudart stand-in: an operation that waits when its device ends is let go",
          "[standin][thread]") {
  const CudartScope scope;
  const cudaStream_t stream = NewStream();
  std::atomic<bool> asked{false};
  std::atomic<bool> skipped{false};
  Operation operation;
  operation.gate = std::make_shared<Gate>();
  operation.ready = [&asked] {
    asked = true;
    return false;
  };
  operation.skip = [&skipped](const absl::Status&) { skipped = true; };
  CHECK(EnqueueOperation(stream, std::move(operation)) == cudaSuccess);
  while (!asked) std::this_thread::yield();
  EndDevice(0, cudaErrorIllegalAddress);
  while (cudaStreamQuery(stream) == cudaErrorNotReady) std::this_thread::yield();
  CHECK(skipped);
  cudaStreamDestroy(stream);
}

TEST_CASE("Cudart stand-in: queries that are not ready call the hook", "[standin][thread]") {
  std::atomic<int> called{0};
  std::atomic<bool> open{false};
  CudartOptions options;
  options.not_ready = [&] {
    ++called;
    open = true;
  };
  const CudartScope scope(options);
  const cudaStream_t stream = NewStream();
  EnqueueKernel(stream, "waits for a poll", [&open] {
    while (!open) std::this_thread::yield();
  });
  Destroy(stream);
  CHECK(called > 0);
}

PFN_cuStreamWaitValue32_v11070 WaitFunction() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  REQUIRE(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &found, 11070, cudaEnableDefault,
                                           &result) == cudaSuccess);
  REQUIRE(result == cudaDriverEntryPointSuccess);
  return reinterpret_cast<PFN_cuStreamWaitValue32_v11070>(found);
}

uint32_t* NewPinned() {
  void* data = nullptr;
  REQUIRE(cudaHostAlloc(&data, 8, cudaHostAllocPortable) == cudaSuccess);
  return static_cast<uint32_t*>(data);
}

CUdeviceptr AddressOf(const void* data) { return reinterpret_cast<CUdeviceptr>(data); }

TEST_CASE("Cudart stand-in: functions of the driver are those that it has in that version",
          "[standin]") {
  for (const bool has : {true, false}) {
    const CudartScope scope({.wait_value = has});
    void* found = &found;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSuccess;
    const auto find = [&](const char* name, unsigned int version) {
      return cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
    };
    CHECK(find("cuStreamWaitValue32", 11070) == cudaSuccess);
    CHECK((found != nullptr) == has);
    CHECK((result == cudaDriverEntryPointSuccess) == has);
    CHECK(find("cuNothing", 11070) == cudaSuccess);
    CHECK(found == nullptr);
    CHECK(result == cudaDriverEntryPointSymbolNotFound);
    CHECK(find("cuStreamWaitValue32", 8000) == cudaSuccess);
    CHECK(found == nullptr);
    CHECK(find("cuStreamWaitValue32", 99000) == cudaErrorInvalidValue);
  }
}

TEST_CASE("Cudart stand-in: a wait holds its stream until the value is reached and goes round",
          "[standin][thread]") {
  const CudartScope scope;
  const auto wait = WaitFunction();
  const cudaStream_t stream = NewStream();
  uint32_t* const at = NewPinned();
  *at = ~uint32_t{0} - 1;
  // Behind, equal, and a little ahead across the end of the numbers.
  CHECK(wait(stream, AddressOf(at), ~uint32_t{0} - 5, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
  CHECK(wait(stream, AddressOf(at), ~uint32_t{0} - 1, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
  Drain(stream);
  std::atomic<bool> ran{false};
  CHECK(wait(stream, AddressOf(at), 2, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
  EnqueueKernel(stream, "behind", [&ran] { ran = true; });
  const std::atomic_ref<uint32_t> value(*at);
  for (const uint32_t before : {~uint32_t{0}, uint32_t{0}, uint32_t{1}}) {
    value.store(before, std::memory_order_release);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    CHECK(!ran);
  }
  value.store(3, std::memory_order_release);
  Destroy(stream);
  CHECK(ran);
  CHECK(Calls("cuStreamWaitValue32") == 3);
  cudaFreeHost(at);
}

TEST_CASE("Cudart stand-in: waits for memory that is not pinned or does not live are violations",
          "[standin][thread]") {
  const CudartScope scope;
  const auto wait = WaitFunction();
  const cudaStream_t stream = NewStream();
  uint32_t* const at = NewPinned();
  *at = 0;
  uint8_t* const memory = NewMemory(8);
  uint32_t mine = 0;
  struct Case {
    CUdeviceptr address;
    unsigned int flags;
    const char* text;
  };
  for (const Case& wrong : {Case{AddressOf(&mine), CU_STREAM_WAIT_VALUE_GEQ, "not pinned memory"},
                            Case{AddressOf(memory), CU_STREAM_WAIT_VALUE_GEQ, "not pinned memory"},
                            Case{AddressOf(at) + 8, CU_STREAM_WAIT_VALUE_GEQ, "not pinned memory"},
                            Case{AddressOf(at) + 2, CU_STREAM_WAIT_VALUE_GEQ, "multiple of 4"},
                            Case{AddressOf(at) + 5, CU_STREAM_WAIT_VALUE_GEQ, "past the end"},
                            Case{AddressOf(at), CU_STREAM_WAIT_VALUE_EQ, "comparison"}}) {
    CHECK(wait(stream, wrong.address, 0, wrong.flags) == CUDA_ERROR_INVALID_VALUE);
    CHECK_THAT(TheViolation(), ContainsSubstring(wrong.text));
  }
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  FailCall("cuStreamWaitValue32", 0, cudaErrorNotSupported);
  CHECK(wait(stream, AddressOf(at), 0, 0) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(wait(stream, AddressOf(at), 1, 0) == CUDA_SUCCESS);
  cudaFreeHost(at);
  Destroy(stream);
  CHECK_THAT(TheViolation(), ContainsSubstring("freed before it was over"));
  CHECK(wait(stream, AddressOf(memory), 0, 0) == CUDA_ERROR_INVALID_HANDLE);
  CHECK_THAT(TheViolation(), ContainsSubstring("no such stream"));
  cudaFree(memory);
}

TEST_CASE("Cudart stand-in: a wait that is never over ends its device and says what for",
          "[standin][thread]") {
  const CudartScope scope({.wait_value_seconds = 0.02});
  const auto wait = WaitFunction();
  const cudaStream_t stream = NewStream();
  uint32_t* const at = NewPinned();
  *at = 5;
  CHECK(wait(stream, AddressOf(at), 7, 0) == CUDA_SUCCESS);
  while (cudaStreamQuery(stream) == cudaErrorNotReady) std::this_thread::yield();
  CHECK_THAT(TheViolation(), ContainsSubstring("the value 7 was not reached in 0.02 seconds"));
  CHECK(cudaStreamQuery(stream) == cudaErrorLaunchFailure);
  CHECK(wait(stream, AddressOf(at), 7, 0) == CUDA_ERROR_LAUNCH_FAILED);
  cudaStreamDestroy(stream);
  cudaFreeHost(at);
}

TEST_CASE("Cudart stand-in: memory runs out at the sizes given, and wraps nowhere", "[standin]") {
  const CudartScope scope({.total_bytes = 100, .used_bytes = 40, .pinnable_bytes = 10});
  void* data = nullptr;
  for (const size_t bytes : {size_t{61}, size_t{1} << 50, size_t{1} << 63, ~size_t{0}}) {
    CHECK(cudaMalloc(&data, bytes) == cudaErrorMemoryAllocation);
  }
  CHECK(data == nullptr);
  CHECK(cudaHostAlloc(&data, 11, cudaHostAllocPortable) == cudaErrorMemoryAllocation);
  size_t free = 0;
  size_t total = 0;
  CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(free == 60);
  CHECK(total == 100);
  CHECK(cudaMalloc(&data, 60) == cudaSuccess);
  void* pinned = nullptr;
  CHECK(cudaHostAlloc(&pinned, 10, cudaHostAllocPortable) == cudaSuccess);
  CHECK(LiveObjects() ==
        Live{.allocations = 1, .bytes = 60, .host_allocations = 1, .host_bytes = 10});
  CHECK(cudaFreeHost(data) == cudaErrorInvalidValue);
  CHECK(TakeViolations().size() == 1);
  cudaFree(data);
  cudaFreeHost(pinned);
}

}  // namespace
}  // namespace zero::standin
