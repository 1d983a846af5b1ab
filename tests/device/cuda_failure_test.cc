// Every CUDA call fails once, and every operation ends the device once.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "device/cuda_device.h"
#include "device/cuda_status.h"
#include "device/cuda_stream.h"
#include "device/status.h"
#include "tests/device/device_test_util.h"
#include "tests/standin/cudart_test.h"

namespace zero::test {
namespace {

using standin::CudartScope;

struct Outcome {
  absl::Status status;
  int64_t dropped = 0;
  bool met = false;  // the planned failure, before the device's own destruction
  absl::Status pinning;
};

absl::Status UseEverything(CudaDevice& device) {
  ZERO_ASSIGN_OR_RETURN(const int64_t free, device.FreeBytes());
  if (free <= 0) return absl::FailedPreconditionError("nothing free");
  ZERO_ASSIGN_OR_RETURN(const Buffer host,
                        device.AllocateHost(128, MemoryCategory::kHostStaging, "host"));
  ZERO_ASSIGN_OR_RETURN(const Buffer buffer,
                        device.Allocate(128, MemoryCategory::kOther, "device"));
  ZERO_ASSIGN_OR_RETURN(const auto stream, device.CreateStream("own"));
  ZERO_ASSIGN_OR_RETURN(const auto wrapped, device.WrapStream(nullptr, "wrapped"));
  ZERO_ASSIGN_OR_RETURN(const auto beside, device.CreateHostStream("beside"));
  ZERO_ASSIGN_OR_RETURN(const auto event, device.CreateEvent());
  ZERO_ASSIGN_OR_RETURN(const auto turn, device.CreateEvent());
  const auto enqueue = [&]() -> absl::Status {
    ZERO_RETURN_IF_ERROR(device.Fill(*stream, buffer.data(), 9, 128));
    ZERO_RETURN_IF_ERROR(event->Record(*stream));
    ZERO_RETURN_IF_ERROR(wrapped->Wait(*event));
    ZERO_RETURN_IF_ERROR(device.Copy(*wrapped, host.data(), buffer.data(), 128));
    ZERO_RETURN_IF_ERROR(turn->Record(*wrapped));
    ZERO_RETURN_IF_ERROR(beside->Wait(*turn));
    ZERO_RETURN_IF_ERROR(beside->Enqueue("add", [data = host.as<uint8_t>()] {
      data[127] = static_cast<uint8_t>(data[127] + 1);
      return absl::OkStatus();
    }));
    // The stream of the host still holds the point.
    ZERO_RETURN_IF_ERROR(turn->Record(*wrapped));
    ZERO_RETURN_IF_ERROR(turn->Record(*beside));
    ZERO_RETURN_IF_ERROR(stream->Wait(*turn));
    ZERO_RETURN_IF_ERROR(device.Copy(*stream, buffer.data(), host.data(), 128));
    ZERO_RETURN_IF_ERROR(device.Copy(*stream, host.data(), buffer.data(), 128));
    ZERO_RETURN_IF_ERROR(event->Synchronize(absl::Seconds(20)));
    if (!event->Reached()) return stream->Health();
    ZERO_RETURN_IF_ERROR(stream->Health());
    return wrapped->Health();
  };
  const absl::Status enqueued = enqueue();
  // Whatever failed, memory is safe after this.
  const absl::Status first = stream->Synchronize();
  const absl::Status second = wrapped->Synchronize();
  const absl::Status third = beside->Synchronize();
  if (!enqueued.ok()) return enqueued;
  if (!first.ok()) return first;
  ZERO_RETURN_IF_ERROR(second);
  ZERO_RETURN_IF_ERROR(third);
  return host.as<uint8_t>()[127] == 10 ? absl::OkStatus() : absl::DataLossError("wrong bytes");
}

// On GPU 1, so that it has to be made current.
Outcome Exercise() {
  Outcome outcome;
  auto device = CudaDevice::Create({.id = 1});
  outcome.status = device.status();
  if (!device.ok()) return outcome;
  outcome.status = UseEverything(**device);
  outcome.dropped = (*device)->dropped_errors();
  outcome.pinning = (*device)->pinning_refusal();
  outcome.met = standin::FaultsAreUsedUp();
  return outcome;
}

std::vector<std::string> Functions() {
  const CudartScope scope({.devices = 2});
  const Outcome outcome = Exercise();
  INFO(outcome.status.ToString());
  REQUIRE(outcome.status.ok());
  CHECK(outcome.dropped == 0);
  CHECK_OK(outcome.pinning);
  return standin::CalledFunctions();
}

TEST_CASE("CUDA failure: each call that fails is named, and nothing is leaked",
          "[device][cuda][thread]") {
  const std::vector<std::string> functions = Functions();
  CHECK(functions.size() >= 19);
  for (const std::string& function : functions) {
    int failures = 0;
    for (int n = 0;; ++n) {
      CAPTURE(function, n);
      const CudartScope scope({.devices = 2});  // checks that nothing is left
      standin::FailCall(function, n, cudaErrorInvalidConfiguration);
      const Outcome outcome = Exercise();
      const bool met = standin::FaultsAreUsedUp();
      if (!met) {
        standin::Reset({.devices = 2});
        REQUIRE(outcome.status.ok());
        break;
      }
      ++failures;
      INFO(outcome.status.ToString());
      // Returned, counted in a destructor, or made up for with ordinary memory.
      if (!outcome.status.ok()) {
        CHECK(absl::StrContains(outcome.status.message(), function));
        CHECK(absl::IsInvalidArgument(outcome.status));
      } else if (!outcome.pinning.ok()) {
        CHECK(absl::StrContains(outcome.pinning.message(), function));
      } else {
        // A device that is gone cannot be asked any more.
        CHECK(outcome.dropped == (outcome.met ? 1 : 0));
      }
    }
    CHECK(failures > 0);
  }
}

TEST_CASE("CUDA failure: a fault of the device at any operation ends all streams with its error",
          "[device][cuda][thread]") {
  int failures = 0;
  for (int n = 0;; ++n) {
    CAPTURE(n);
    const CudartScope scope({.devices = 2});
    standin::EndDeviceAfter(1, n, cudaErrorIllegalAddress);
    const Outcome outcome = Exercise();
    INFO(outcome.status.ToString());
    if (outcome.status.ok()) break;
    ++failures;
    CHECK(absl::IsInternal(outcome.status));
    CHECK_THAT(std::string(outcome.status.message()), ContainsSubstring("cudaErrorIllegalAddress"));
    CHECK_THAT(std::string(outcome.status.message()), ContainsSubstring("started again"));
    // The other GPU is as it was.
    auto other = CudaDevice::Create({.id = 0});
    REQUIRE_OK(other.status());
    CHECK_OK(UseEverything(**other));
  }
  CHECK(failures >= 10);  // fill, records, waits, copies
}

TEST_CASE("CUDA failure: after a fault every call returns it and every stream has it",
          "[device][cuda][thread]") {
  const CudartScope scope;
  auto device = CudaDevice::Create();
  REQUIRE_OK(device.status());
  {
    const auto stream = NewStream(**device, "s");
    const auto other = NewStream(**device, "other");
    const auto event = NewEvent(**device);
    auto buffer = (*device)->Allocate(64, MemoryCategory::kOther, "buffer");
    REQUIRE_OK(buffer.status());
    REQUIRE_OK(event->Record(*stream));
    REQUIRE_OK(stream->Synchronize());
    standin::EndDevice(0, cudaErrorECCUncorrectable);
    // Found by the first call of any kind.
    const absl::Status found = (*device)->Fill(*stream, buffer->data(), 1, 64);
    CHECK(absl::IsInternal(found));
    CHECK_THAT(std::string(found.message()), ContainsSubstring("cudaErrorECCUncorrectable"));
    CHECK(other->Health() == found);
    CHECK(other->Synchronize() == found);
    CHECK(event->Synchronize(absl::InfiniteDuration()) == found);
    CHECK(event->Reached());
    for (const absl::Status& status :
         {(*device)->CreateStream("late").status(), (*device)->CreateEvent().status(),
          (*device)->Allocate(1, MemoryCategory::kOther, "late").status(),
          (*device)->AllocateHost(1, MemoryCategory::kHostStaging, "late").status(),
          (*device)->FreeBytes().status(), other->Wait(*event), event->Record(*other)}) {
      CHECK(absl::IsInternal(status));
      CHECK_THAT(std::string(status.message()), ContainsSubstring("cudaErrorECCUncorrectable"));
    }
    CHECK_OK((*device)->pinning_refusal());
  }
  CHECK((*device)->dropped_errors() == 0);  // it was reported
}

TEST_CASE("CUDA failure: a poll that fails twice in a row ends the wait, once it does not",
          "[device][cuda][thread]") {
  for (const bool twice : {false, true}) {
    Door door;
    std::atomic<bool> ran{false};
    const CudartScope scope;
    auto device = CudaDevice::Create();
    REQUIRE_OK(device.status());
    const auto stream = NewStream(**device, "s");
    const auto event = NewEvent(**device);
    REQUIRE_OK(door.Block(*stream));
    REQUIRE_OK(Run(*stream, [&ran] { ran = true; }));
    REQUIRE_OK(event->Record(*stream));
    standin::FailCall("cudaEventQuery", 0, cudaErrorInvalidResourceHandle);
    if (twice) standin::FailCall("cudaEventQuery", 1, cudaErrorInvalidResourceHandle);
    absl::Status status;
    std::thread opener([&] {
      if (!twice) {
        Sleep(20);
        door.Open();
      }
    });
    status = event->Synchronize(absl::Seconds(20));
    CHECK(ran == !twice);
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), ContainsSubstring("cudaEventQuery"));
    CHECK(stream->Health() == status);
    opener.join();
    door.Open();
  }
}

TEST_CASE("CUDA failure: an event that cannot be asked about is not said to be reached",
          "[device][cuda]") {
  const CudartScope scope;
  auto device = CudaDevice::Create();
  REQUIRE_OK(device.status());
  const auto stream = NewStream(**device, "s");
  const auto event = NewEvent(**device);
  REQUIRE_OK(event->Record(*stream));
  REQUIRE_OK(stream->Synchronize());
  standin::FailCall("cudaEventQuery", 0, cudaErrorInvalidResourceHandle);
  CHECK(!event->Reached());
  CHECK(absl::IsInvalidArgument(stream->Health()));
  CHECK(event->Reached());
}

TEST_CASE("CUDA status: codes say what can be done", "[device][cuda]") {
  const CudartScope scope;
  CHECK_OK(CudaStatus(cudaSuccess, "cudaFree"));
  struct Case {
    cudaError_t error;
    absl::StatusCode code;
  };
  for (const Case& known : {Case{cudaErrorMemoryAllocation, absl::StatusCode::kResourceExhausted},
                            Case{cudaErrorNoDevice, absl::StatusCode::kUnavailable},
                            Case{cudaErrorSystemNotReady, absl::StatusCode::kUnavailable},
                            Case{cudaErrorInvalidValue, absl::StatusCode::kInvalidArgument},
                            Case{cudaErrorNotSupported, absl::StatusCode::kUnimplemented},
                            Case{cudaErrorLaunchFailure, absl::StatusCode::kInternal},
                            Case{cudaErrorPeerAccessUnsupported, absl::StatusCode::kInternal}}) {
    const absl::Status status = CudaStatus(known.error, "cudaSomething");
    INFO(status.ToString());
    CHECK(status.code() == known.code);
    CHECK_THAT(std::string(status.message()), ContainsSubstring("cudaSomething"));
    CHECK_THAT(std::string(status.message()),
               ContainsSubstring(std::to_string(static_cast<int>(known.error))));
  }
  CHECK(LosesContext(cudaErrorLaunchTimeout));
  CHECK(!LosesContext(cudaErrorMemoryAllocation));
}

}  // namespace
}  // namespace zero::test
