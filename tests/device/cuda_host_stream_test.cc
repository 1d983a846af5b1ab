// What streams of the host have beside a GPU only, on the cudart stand-in.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/cuda_device.h"
#include "device/cuda_stream.h"
#include "device/handover.h"
#include "tests/device/device_test_util.h"
#include "tests/standin/cudart_test.h"

namespace zero::test {
namespace {

using standin::CudartScope;

std::unique_ptr<CudaDevice> NewCuda(CudaDevice::Options options = {}) {
  auto device = CudaDevice::Create(options);
  REQUIRE_OK(device.status());
  return *std::move(device);
}

TEST_CASE("CUDA host stream: a driver that cannot wait for the host is named as too old",
          "[device][cuda]") {
  const CudartScope scope({.wait_value = false});
  const auto device = NewCuda();
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto stream = device->CreateHostStream("optimizer");
    CHECK(absl::IsUnimplemented(stream.status()));
    CHECK_THAT(std::string(stream.status().message()),
               ContainsSubstring("no cuStreamWaitValue32") && ContainsSubstring("newer driver"));
  }
}

TEST_CASE("CUDA host stream: one without pinned memory for its counter is refused by name",
          "[device][cuda]") {
  const CudartScope scope({.pinnable_bytes = 10});
  const auto device = NewCuda();
  const auto stream = device->CreateHostStream("optimizer");
  CHECK(absl::IsResourceExhausted(stream.status()));
  CHECK_THAT(std::string(stream.status().message()),
             ContainsSubstring("'optimizer'") && ContainsSubstring("bytes of pinned memory") &&
                 ContainsSubstring("cudaHostAlloc"));
}

TEST_CASE("CUDA host stream: kernels find the pool that the device was given", "[device][cuda]") {
  const CudartScope scope;
  ThreadPool pool(2);
  const auto with = NewCuda({.host_pool = &pool});
  const auto without = NewCuda();
  CHECK(HostPool(*NewHostStream(*with, "s")) == &pool);
  CHECK(HostPool(*NewHostStream(*without, "s")) == nullptr);
}

TEST_CASE("CUDA host stream: hooks see its operations and their errors are its own",
          "[device][cuda][thread]") {
  const CudartScope scope;
  std::vector<std::string> seen;  // of one stream: no lock
  CudaDevice::Options options;
  options.host_hook = [&seen](const std::string& stream, const char* operation) {
    seen.push_back(stream + "/" + operation);
    return seen.size() == 4 ? absl::UnavailableError("injected") : absl::OkStatus();
  };
  const auto device = NewCuda(options);
  const auto stream = NewStream(*device, "device");
  const auto event = NewEvent(*device);
  {
    const auto host = NewHostStream(*device, "host");
    std::atomic<bool> ran{false};
    REQUIRE_OK(event->Record(*stream));
    REQUIRE_OK(host->Wait(*event));
    REQUIRE_OK(RunOnHost(*host, [] {}));
    REQUIRE_OK(event->Record(*host));
    REQUIRE_OK(RunOnHost(*host, [&ran] { ran = true; }));
    // The record that the hook refuses later lets the GPU go on all the same.
    const auto later = NewEvent(*device);
    REQUIRE_OK(later->Record(*host));
    REQUIRE_OK(stream->Wait(*later));
    CHECK_OK(stream->Synchronize());
    CHECK(host->Synchronize().message() == "injected");
    CHECK(!ran);
  }
  CHECK(seen == std::vector<std::string>{"host/wait", "host/test", "host/record", "host/test"});
}

TEST_CASE("CUDA host stream: a steady state makes no events and pins no memory",
          "[device][cuda][thread]") {
  const CudartScope scope;
  const auto device = NewCuda();
  const auto out = NewStream(*device, "out");
  const auto in = NewStream(*device, "in");
  std::vector<Handover> slots;
  for (int s = 0; s < 4; ++s) slots.emplace_back(device.get());
  const auto optimizer = NewHostStream(*device, "optimizer");
  std::vector<int> values(4, 0);
  int64_t events = 0;
  int64_t pinned = 0;
  for (int use = 0; use < 400; ++use) {
    if (use == 200) {
      events = standin::Calls("cudaEventCreateWithFlags");
      pinned = standin::Calls("cudaHostAlloc");
    }
    Handover& slot = slots[use % 4];
    int& value = values[use % 4];
    REQUIRE_OK(slot.Write(*out, [&] { return Run(*out, [&value] { ++value; }); }));
    REQUIRE_OK(
        slot.Write(*optimizer, [&] { return RunOnHost(*optimizer, [&value] { ++value; }); }));
    REQUIRE_OK(slot.Write(*in, [&] { return Run(*in, [&value] { ++value; }); }));
    // A ring does not run ahead of itself by more than its slots.
    if (use % 4 == 3) REQUIRE_OK(in->Synchronize());
  }
  REQUIRE_OK(in->Synchronize());
  CHECK(values == std::vector<int>(4, 300));
  CHECK(standin::Calls("cudaEventCreateWithFlags") == events);
  CHECK(standin::Calls("cudaHostAlloc") == pinned);
  // Nor does a stream in the place of another.
  for (int i = 0; i < 3; ++i) {
    const auto guest = NewHostStream(*device, "guest");
    REQUIRE_OK(slots[0].Write(*guest, [] { return absl::OkStatus(); }));
  }
  REQUIRE_OK(slots[0].Write(*in, [] { return absl::OkStatus(); }));
  CHECK_OK(in->Synchronize());
  CHECK(standin::Calls("cudaHostAlloc") <= pinned + 1);
}

TEST_CASE("CUDA host stream: as many points are kept as waits hold and no more",
          "[device][cuda][thread]") {
  const CudartScope scope;
  const auto device = NewCuda();
  const auto stream = NewStream(*device, "device");
  const auto host = NewHostStream(*device, "host");
  auto event = NewEvent(*device);
  Door door;
  REQUIRE_OK(host->Enqueue(door.Blocked()));
  const int64_t before = standin::LiveObjects().events;
  for (int i = 0; i < 10; ++i) {
    REQUIRE_OK(event->Record(*stream));
    REQUIRE_OK(host->Wait(*event));
  }
  CHECK(standin::LiveObjects().events == before + 9);
  // Recorded on while nobody waits, it needs no others.
  for (int i = 0; i < 10; ++i) REQUIRE_OK(event->Record(*stream));
  CHECK(standin::LiveObjects().events == before + 10);
  event = nullptr;
  door.Open();
  CHECK_OK(host->Synchronize());
  // They are used again.
  const int64_t made = standin::Calls("cudaEventCreateWithFlags");
  std::vector<std::unique_ptr<Event>> events;
  for (int i = 0; i < 10; ++i) {
    events.push_back(NewEvent(*device));
    CHECK(!events.back()->recorded());
  }
  CHECK(standin::Calls("cudaEventCreateWithFlags") == made);
}

TEST_CASE("CUDA host stream: events of another device are not recorded in it",
          "[device][cuda][thread]") {
  const CudartScope scope({.devices = 2});
  const auto a = NewCuda({.id = 0});
  const auto b = NewCuda({.id = 1});
  const auto same = NewCuda({.id = 0});
  const auto host = NewHostStream(*a, "of a");
  for (CudaDevice* other : {b.get(), same.get()}) {
    const auto event = NewEvent(*other);
    const absl::Status refused = event->Record(*host);
    CHECK(absl::IsInvalidArgument(refused));
    CHECK_THAT(std::string(refused.message()), ContainsSubstring("'of a'"));
    CHECK(!event->recorded());
  }
  // But others may wait for its own.
  const auto event = NewEvent(*a);
  int value = 0;
  int seen = 0;
  REQUIRE_OK(RunOnHost(*host, [&value] {
    Sleep(5);
    value = 4;
  }));
  REQUIRE_OK(event->Record(*host));
  const auto far = NewStream(*b, "of b");
  REQUIRE_OK(far->Wait(*event));
  REQUIRE_OK(Run(*far, [&] { seen = value; }));
  REQUIRE_OK(far->Synchronize());
  CHECK(seen == 4);
}

TEST_CASE("CUDA host stream: a GPU that is lost ends its waits and not its own work",
          "[device][cuda][thread]") {
  const CudartScope scope;
  const auto device = NewCuda();
  const auto stream = NewStream(*device, "device");
  const auto waiting = NewHostStream(*device, "waiting");
  const auto busy = NewHostStream(*device, "busy");
  const auto event = NewEvent(*device);
  const auto done = NewEvent(*device);
  // The GPU's stream waits for the host, the host's for the GPU, and neither will come.
  Door door;
  REQUIRE_OK(busy->Enqueue(door.Blocked()));
  REQUIRE_OK(done->Record(*busy));
  REQUIRE_OK(stream->Wait(*done));
  REQUIRE_OK(event->Record(*stream));
  REQUIRE_OK(waiting->Wait(*event));
  Sleep(5);
  standin::EndDevice(0, cudaErrorIllegalAddress);
  const absl::Status status = waiting->Synchronize();
  CHECK(absl::IsInternal(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("cudaErrorIllegalAddress"));
  CHECK(!stream->Synchronize().ok());
  CHECK(busy->Health().ok());
  door.Open();
  CHECK_OK(busy->Synchronize());
  CHECK(done->Reached());
}

TEST_CASE("CUDA host stream: operations that begin late on either side change no result",
          "[device][cuda][thread]") {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const CudartScope scope({.delay_us = 300, .seed = seed});
    std::atomic<uint64_t> drawn{seed};
    CudaDevice::Options options;
    options.host_hook = [&drawn](const std::string&, const char*) {
      const uint64_t number = drawn.fetch_add(1, std::memory_order_relaxed) * 0x9e3779b97f4a7c15;
      if (number >> 62 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds((number >> 32) % 300));
      }
      return absl::OkStatus();
    };
    const auto device = NewCuda(options);
    const auto out = NewStream(*device, "out");
    const auto in = NewStream(*device, "in");
    const auto optimizer = NewHostStream(*device, "optimizer");
    // Gradients come out, the host changes its weights with them, and those go in.
    Handover on_host(device.get());
    Handover on_device(device.get());
    auto far = device->Allocate(64, MemoryCategory::kOther, "far");
    auto near = device->AllocateHost(64, MemoryCategory::kHostSlots, "near");
    REQUIRE_OK(far.status());
    REQUIRE_OK(near.status());
    REQUIRE_OK(device->Fill(*out, far->data(), 0, 64));
    for (int round = 0; round < 20; ++round) {
      REQUIRE_OK(on_device.Read(*out, [&] {
        return on_host.Write(*out,
                             [&] { return device->Copy(*out, near->data(), far->data(), 64); });
      }));
      REQUIRE_OK(on_host.Write(*optimizer, [&] {
        return RunOnHost(*optimizer, [data = near->as<uint8_t>()] {
          for (int i = 0; i < 64; ++i) data[i] = static_cast<uint8_t>(data[i] + 3);
        });
      }));
      REQUIRE_OK(on_host.Read(*in, [&] {
        return on_device.Write(*in,
                               [&] { return device->Copy(*in, far->data(), near->data(), 64); });
      }));
    }
    REQUIRE_OK(out->Synchronize());
    REQUIRE_OK(in->Synchronize());
    CHECK(near->as<uint8_t>()[0] == 60);
    CHECK(near->as<uint8_t>()[63] == 60);
    CHECK(device->bytes_from_device() == 20 * 64);
    CHECK(device->bytes_to_device() == 20 * 64);
  }
}

}  // namespace
}  // namespace zero::test
