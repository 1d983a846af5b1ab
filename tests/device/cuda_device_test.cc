// What only CUDA devices have, on the cudart stand-in.
#include "device/cuda_device.h"

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "device/cuda_stream.h"
#include "device/handover.h"
#include "device/status.h"
#include "tests/device/device_test_util.h"
#include "tests/standin/cudart_test.h"

namespace zero::test {
namespace {

using standin::CudartOptions;
using standin::CudartScope;

std::unique_ptr<CudaDevice> NewCuda(int id = 0, int64_t capacity = -1) {
  auto device = CudaDevice::Create({.id = id, .capacity = capacity});
  REQUIRE_OK(device.status());
  return *std::move(device);
}

TEST_CASE("CudaDevice: kind and properties are those of its GPU", "[device][cuda]") {
  const CudartScope scope({.devices = 2,
                           .total_bytes = 1000,
                           .used_bytes = 300,
                           .bus_ids = {"0000:07:00.0", "0000:0b:00.0"}});
  const auto count = CudaDeviceCount();
  REQUIRE_OK(count.status());
  CHECK(*count == 2);
  const auto device = NewCuda(1);
  CHECK(device->kind() == DeviceKind::kCuda);
  CHECK(device->id() == 1);
  CHECK(device->properties().name == "Stand-in GPU");
  CHECK(device->properties().major == 9);
  CHECK(device->properties().minor == 0);
  CHECK(device->properties().multiprocessors == 8);
  CHECK(device->properties().total_bytes == 1000);
  CHECK(device->properties().pci_bus_id == "0000:0b:00.0");
  const auto free = device->FreeBytes();
  REQUIRE_OK(free.status());
  CHECK(*free == 700);
}

TEST_CASE("CudaDevice: an id that this process does not see is refused with their number",
          "[device][cuda]") {
  const CudartScope scope({.devices = 2});
  for (const int id : {-1, 2, 7}) {
    const auto device = CudaDevice::Create({.id = id});
    CHECK(absl::IsInvalidArgument(device.status()));
    const std::string message(device.status().message());
    CHECK_THAT(message, ContainsSubstring("GPU " + std::to_string(id)));
    CHECK_THAT(message, ContainsSubstring("sees 2"));
  }
}

TEST_CASE("CudaDevice: without a usable driver the message says why and names the host device",
          "[device][cuda]") {
  struct Case {
    cudaError_t error;
    int driver;
    const char* reason;
  };
  for (const Case& absent :
       {Case{cudaErrorInsufficientDriver, 0, "no NVIDIA driver is installed"},
        Case{cudaErrorInsufficientDriver, 12040, "supports CUDA 12.4, this build was made with"},
        Case{cudaErrorNoDevice, 13000, "sees no GPU"}}) {
    CudartOptions options;
    options.absence = absent.error;
    options.driver_version = absent.driver;
    const CudartScope scope(options);
    for (const absl::Status& status : {CudaDeviceCount().status(), CudaDevice::Create().status()}) {
      CHECK(absl::IsUnavailable(status));
      const std::string message(status.message());
      CHECK_THAT(message, ContainsSubstring(absent.reason));
      CHECK_THAT(message, ContainsSubstring("HostDevice"));
      CHECK_THAT(message, ContainsSubstring("cudaGetDeviceCount"));
    }
    CHECK(cudaPeekAtLastError() == cudaSuccess);
  }
}

TEST_CASE("CudaDevice: what the card has free bounds memory, with the table and nothing changed",
          "[device][cuda]") {
  const CudartScope scope({.total_bytes = 10000, .used_bytes = 4000});
  const auto device = NewCuda();
  const auto held = device->Allocate(5000, MemoryCategory::kWeights, "weights");
  REQUIRE_OK(held.status());
  const auto refused = device->Allocate(1001, MemoryCategory::kGradients, "gradients of 'b'");
  REQUIRE(absl::IsResourceExhausted(refused.status()));
  const std::string message(refused.status().message());
  for (const char* part : {"gradients of 'b'", "1001 bytes of gradients", "cudaMalloc",
                           "GPU 0 has 1000 bytes free", "weights 5000 (peak 5000)"}) {
    CHECK_THAT(message, ContainsSubstring(part));
  }
  CHECK(device->allocations() == 1);
  CHECK(standin::LiveObjects().allocations == 1);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK_OK(device->Allocate(1000, MemoryCategory::kGradients, "smaller").status());
}

TEST_CASE("CudaDevice: two devices on one GPU have books of their own and share what is free",
          "[device][cuda]") {
  const CudartScope scope({.total_bytes = 1000});
  const auto a = NewCuda();
  const auto b = NewCuda(0, 600);
  const auto held = a->Allocate(500, MemoryCategory::kWeights, "a");
  REQUIRE_OK(held.status());
  CHECK(UseOf(*b, MemoryCategory::kWeights).current == 0);
  const auto refused = b->Allocate(501, MemoryCategory::kWeights, "b");
  CHECK(absl::IsResourceExhausted(refused.status()));
  CHECK_THAT(std::string(refused.status().message()), ContainsSubstring("500 bytes free"));
  CHECK_OK(b->Allocate(500, MemoryCategory::kWeights, "b").status());
}

TEST_CASE("CudaDevice: memory of the host is pinned, and copies with it do not block",
          "[device][cuda]") {
  const CudartScope scope;
  const auto device = NewCuda();
  const auto stream = NewStream(*device, "s");
  auto staging = device->AllocateHost(256, MemoryCategory::kHostStaging, "staging");
  auto buffer = device->Allocate(256, MemoryCategory::kOther, "buffer");
  REQUIRE_OK(staging.status());
  REQUIRE_OK(buffer.status());
  CHECK(standin::LiveObjects().host_bytes == 256);
  REQUIRE_OK(device->Copy(*stream, buffer->data(), staging->data(), 256));
  REQUIRE_OK(stream->Synchronize());
  CHECK(standin::PageableCopies() == 0);
  CHECK_OK(device->pinning_refusal());
}

TEST_CASE("CudaDevice: where pages cannot be pinned ordinary memory serves, and the reason is kept",
          "[device][cuda]") {
  const CudartScope scope({.pinnable_bytes = 100});
  const auto device = NewCuda();
  const auto stream = NewStream(*device, "s");
  {
    auto pinned = device->AllocateHost(100, MemoryCategory::kHostStaging, "fits");
    REQUIRE_OK(pinned.status());
    CHECK_OK(device->pinning_refusal());
    CHECK(device->notes().empty());
    auto ordinary = device->AllocateHost(1000, MemoryCategory::kHostStaging, "refused");
    auto later = device->AllocateHost(2000, MemoryCategory::kHostStaging, "refused too");
    REQUIRE_OK(ordinary.status());
    REQUIRE_OK(later.status());
    CHECK(reinterpret_cast<uintptr_t>(ordinary->data()) % 64 == 0);
    CHECK(standin::LiveObjects().host_bytes == 100);
    CHECK(UseOf(*device, MemoryCategory::kHostStaging).current == 3100);
    const absl::Status refusal = device->pinning_refusal();
    CHECK(absl::IsResourceExhausted(refusal));
    // What kernels read has to be pinned.
    const auto flag =
        device->AllocateHost(8, MemoryCategory::kHostStaging, "flag", HostMemory::kReached);
    CHECK(absl::IsResourceExhausted(flag.status()));
    CHECK_THAT(std::string(flag.status().message()),
               ContainsSubstring("flag") && ContainsSubstring("pinning 8 bytes of host memory"));
    const std::string message(refusal.message());
    for (const char* part : {"1000 bytes", "cudaHostAlloc", "cudaErrorMemoryAllocation", "errno",
                             "limit of locked memory (ulimit -l)"}) {
      CHECK_THAT(message, ContainsSubstring(part));
    }
    // Told once, about the first.
    const std::vector<std::string> notes = device->notes();
    REQUIRE(notes.size() == 1);
    CHECK_THAT(notes[0], ContainsSubstring("GPU 0: memory of the host is not pinned") &&
                             ContainsSubstring(message));
    // The same results.
    auto buffer = device->Allocate(1000, MemoryCategory::kOther, "buffer");
    REQUIRE_OK(buffer.status());
    std::memset(ordinary->data(), 5, 1000);
    REQUIRE_OK(device->Copy(*stream, buffer->data(), ordinary->data(), 1000));
    REQUIRE_OK(stream->Synchronize());
    std::memset(ordinary->data(), 0, 1000);
    REQUIRE_OK(device->Copy(*stream, ordinary->data(), buffer->data(), 1000));
    REQUIRE_OK(stream->Synchronize());
    CHECK(ordinary->as<uint8_t>()[999] == 5);
  }
  CHECK(UseOf(*device, MemoryCategory::kHostStaging).current == 0);
  CHECK(device->dropped_errors() == 0);
}

TEST_CASE("CudaDevice: what is not to be pinned is ordinary memory and no refusal",
          "[device][cuda]") {
  const CudartScope scope;
  const auto device = NewCuda();
  const auto stream = NewStream(*device, "s");
  {
    auto host =
        device->AllocateHost(300, MemoryCategory::kHostStates, "states", HostMemory::kPageable);
    auto buffer = device->Allocate(300, MemoryCategory::kOther, "buffer");
    REQUIRE_OK(host.status());
    REQUIRE_OK(buffer.status());
    CHECK(standin::LiveObjects().host_bytes == 0);
    CHECK(UseOf(*device, MemoryCategory::kHostStates).current == 300);
    std::memset(host->data(), 5, 300);
    REQUIRE_OK(device->Copy(*stream, buffer->data(), host->data(), 300));
    REQUIRE_OK(stream->Synchronize());
    CHECK(standin::PageableCopies() == 1);
    CHECK(device->bytes_to_device() == 300);
  }
  CHECK(UseOf(*device, MemoryCategory::kHostStates).current == 0);
  CHECK_OK(device->pinning_refusal());
  CHECK(device->notes().empty());
}

TEST_CASE("CudaDevice: pinned memory is as large as it was asked for and freed once",
          "[device][cuda]") {
  constexpr int64_t kBytes = 1776255;
  const CudartScope scope({.pinnable_bytes = 3 * kBytes});
  const auto device = NewCuda();
  std::vector<Buffer> buffers;
  for (int i = 0; i < 5; ++i) {
    auto buffer = device->AllocateHost(kBytes, MemoryCategory::kHostStates, "states");
    REQUIRE_OK(buffer.status());
    CHECK(buffer->bytes() == kBytes);
    std::memset(buffer->data(), i, kBytes);
    buffers.push_back(*std::move(buffer));
  }
  CHECK(standin::LiveObjects().host_allocations == 3);
  CHECK(standin::LiveObjects().host_bytes == 3 * kBytes);
  for (int i = 0; i < 5; ++i) CHECK(buffers[i].as<uint8_t>()[kBytes - 1] == i);
  // In any order; what is given back can be pinned again.
  buffers.erase(buffers.begin() + 1);
  REQUIRE_OK(device->AllocateHost(kBytes, MemoryCategory::kHostStates, "again").status());
  buffers.clear();
  CHECK(standin::LiveObjects().host_bytes == 0);
  CHECK(device->dropped_errors() == 0);
}

TEST_CASE("CudaDevice: each call has its own GPU current, from any thread, and puts back the old",
          "[device][cuda][thread]") {
  const CudartScope scope({.devices = 3});
  const auto one = NewCuda(1);
  const auto two = NewCuda(2);
  const auto use = [](CudaDevice& device) -> absl::Status {
    ZERO_ASSIGN_OR_RETURN(const auto stream, device.CreateStream("s"));
    ZERO_ASSIGN_OR_RETURN(const auto event, device.CreateEvent());
    ZERO_ASSIGN_OR_RETURN(const Buffer buffer,
                          device.Allocate(64, MemoryCategory::kOther, "buffer"));
    ZERO_RETURN_IF_ERROR(device.Fill(*stream, buffer.data(), 1, 64));
    ZERO_RETURN_IF_ERROR(event->Record(*stream));
    ZERO_RETURN_IF_ERROR(stream->Wait(*event));
    // A launch needs it too.
    CurrentCudaDevice current(CudaId(stream->device()));
    if (standin::EnqueueKernel(NativeStream(*stream), "kernel", [] {}) != cudaSuccess) {
      return absl::InternalError("launch");
    }
    return stream->Synchronize();
  };
  std::vector<absl::Status> used(2);
  std::vector<int> current(2, -1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 10 && used[t].ok(); ++round) {
        used[t] = use(*(t == 0 ? one : two));
      }
      cudaGetDevice(&current[t]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_OK(used[0]);
  CHECK_OK(used[1]);
  CHECK(current == std::vector<int>{0, 0});
  REQUIRE(cudaSetDevice(2) == cudaSuccess);
  CHECK_OK(use(*one));
  int after = -1;
  cudaGetDevice(&after);
  CHECK(after == 2);
}

TEST_CASE("CudaStream: one wrapped around the trainer's is used, drained and left alive",
          "[device][cuda][thread]") {
  const CudartScope scope({.devices = 2});
  cudaStream_t mine = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking) == cudaSuccess);
  {
    const auto device = NewCuda();
    std::atomic<bool> ran{false};
    {
      auto wrapped = device->WrapStream(mine, "trainer");
      REQUIRE_OK(wrapped.status());
      CHECK((*wrapped)->name() == "trainer");
      CHECK(NativeStream(**wrapped) == mine);
      REQUIRE_OK(Run(**wrapped, [&ran] {
        Sleep(20);
        ran = true;
      }));
    }
    CHECK(ran);
    CHECK(device->host_waits() == 0);
    CHECK(cudaStreamQuery(mine) == cudaSuccess);

    const auto other = NewCuda(1);
    const auto refused = other->WrapStream(mine, "trainer");
    CHECK(absl::IsInvalidArgument(refused.status()));
    CHECK_THAT(std::string(refused.status().message()), ContainsSubstring("'trainer' is of GPU 0"));
  }
  CHECK(cudaStreamDestroy(mine) == cudaSuccess);
}

TEST_CASE("CudaStream: the default stream may be wrapped, and belongs to the device that wraps it",
          "[device][cuda][thread]") {
  const CudartScope scope({.devices = 2});
  const auto device = NewCuda(1);
  const auto wrapped = device->WrapStream(nullptr, "default");
  REQUIRE_OK(wrapped.status());
  const auto buffer = device->Allocate(64, MemoryCategory::kOther, "buffer");
  REQUIRE_OK(buffer.status());
  // The stand-in refuses memory of another device.
  CHECK_OK(device->Fill(**wrapped, buffer->data(), 1, 64));
  CHECK_OK((*wrapped)->Synchronize());
}

TEST_CASE("CudaStream: functions of the host cannot be enqueued as operations", "[device][cuda]") {
  const CudartScope scope;
  const auto device = NewCuda();
  const auto stream = NewStream(*device, "s");
  const absl::Status status = stream->Enqueue("work", [] { return absl::OkStatus(); });
  CHECK(absl::IsUnimplemented(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("'work'"));
}

TEST_CASE("CudaEvent: streams of another GPU may wait for it, but not record it",
          "[device][cuda][thread]") {
  const CudartScope scope({.devices = 2});
  const auto a = NewCuda(0);
  const auto b = NewCuda(1);
  const auto writer = NewStream(*a, "writer");
  const auto reader = NewStream(*b, "reader");
  const auto event = NewEvent(*a);
  int value = 0;
  int seen = 0;
  const absl::Status refused = event->Record(*reader);
  CHECK(absl::IsInvalidArgument(refused));
  CHECK_THAT(std::string(refused.message()), ContainsSubstring("'reader'"));
  CHECK(!event->recorded());
  HostDevice host;
  const auto host_stream = NewStream(host, "host");
  CHECK(absl::IsInvalidArgument(event->Record(*host_stream)));
  REQUIRE_OK(Run(*writer, [&value] {
    Sleep(5);
    value = 4;
  }));
  REQUIRE_OK(event->Record(*writer));
  REQUIRE_OK(reader->Wait(*event));
  REQUIRE_OK(Run(*reader, [&] { seen = value; }));
  REQUIRE_OK(reader->Synchronize());
  CHECK(seen == 4);
}

TEST_CASE("CudaEvent: Synchronize gives up after its time limit although other work gets on",
          "[device][cuda][thread]") {
  const CudartScope scope;
  const auto device = NewCuda();
  const auto stuck = NewStream(*device, "stuck");
  const auto event = NewEvent(*device);
  Door door;
  REQUIRE_OK(door.Block(*stuck));
  REQUIRE_OK(event->Record(*stuck));
  const absl::Status status = event->Synchronize(absl::Milliseconds(20));
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("20ms"));
  CHECK(absl::IsDeadlineExceeded(event->Synchronize(absl::ZeroDuration())));
  CHECK(stuck->Health().ok());
  door.Open();
  CHECK_OK(event->Synchronize(absl::Seconds(20)));
}

TEST_CASE("CudaContext: errors of the trainer's own calls are neither taken nor hidden",
          "[device][cuda]") {
  const CudartScope scope;
  const auto device = NewCuda();
  const auto stream = NewStream(*device, "s");
  const auto event = NewEvent(*device);
  // Our own leave nothing behind.
  Door door;
  REQUIRE_OK(door.Block(*stream));
  REQUIRE_OK(event->Record(*stream));
  CHECK(!event->Reached());
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  // The trainer's failed allocation, which it has not asked about yet.
  void* data = nullptr;
  CHECK(cudaMalloc(&data, size_t{1} << 50) == cudaErrorMemoryAllocation);
  const auto another = NewEvent(*device);
  CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
  CHECK(!event->Reached());
  CHECK(cudaGetLastError() != cudaSuccess);
  door.Open();
  CHECK_OK(stream->Synchronize());
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("CudaDevice: operations that begin late change no result", "[device][cuda][thread]") {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const CudartScope scope({.delay_us = 300, .seed = seed});
    const auto device = NewCuda();
    const auto a = NewStream(*device, "a");
    const auto b = NewStream(*device, "b");
    Handover handover(device.get());
    const auto buffer = device->Allocate(64, MemoryCategory::kOther, "buffer");
    REQUIRE_OK(buffer.status());
    std::vector<int> seen;
    for (int round = 0; round < 20; ++round) {
      const Stream& writer = round % 2 == 0 ? *a : *b;
      const Stream& reader = round % 2 == 0 ? *b : *a;
      REQUIRE_OK(handover.Write(writer, [&] {
        return device->Fill(writer, buffer->data(), static_cast<uint8_t>(round), 64);
      }));
      REQUIRE_OK(handover.Read(reader, [&] {
        return Run(reader, [&seen, &buffer] { seen.push_back(buffer->as<uint8_t>()[63]); });
      }));
    }
    REQUIRE_OK(a->Synchronize());
    REQUIRE_OK(b->Synchronize());
    REQUIRE(seen.size() == 20);
    for (int round = 0; round < 20; ++round) CHECK(seen[round] == round);
  }
}

}  // namespace
}  // namespace zero::test
