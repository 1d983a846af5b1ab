// A hand-over of memory between two streams of the cudart stand-in, or one of them and one of the
// host beside it: with an event, or with the event left out, so that ThreadSanitizer has something
// to find. In between come the calls that must not put the streams in order by chance: polls,
// allocations, other events.
// "sum 499500" is the right result.
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda_device.h"
#include "device/cuda_stream.h"
#include "device/status.h"
#include "tests/standin/cudart.h"

namespace {

absl::Status Enqueue(const zero::Stream& stream, std::function<void()> body) {
  if (stream.device().kind() == zero::DeviceKind::kHost) {
    return stream.Enqueue("work", [body = std::move(body)] {
      body();
      return absl::OkStatus();
    });
  }
  const cudaError_t error =
      zero::standin::EnqueueKernel(zero::NativeStream(stream), "kernel", std::move(body));
  return error == cudaSuccess ? absl::OkStatus() : absl::InternalError("launch");
}

enum class Kinds { kDevice, kFromHost, kToHost };

absl::Status HandOver(bool with_event, Kinds kinds) {
  std::vector<int> values(1000, 0);
  int sum = 0;
  ZERO_ASSIGN_OR_RETURN(const auto device, zero::CudaDevice::Create());
  ZERO_ASSIGN_OR_RETURN(const auto writer, kinds == Kinds::kFromHost
                                               ? device->CreateHostStream("writer")
                                               : device->CreateStream("writer"));
  ZERO_ASSIGN_OR_RETURN(const auto reader, kinds == Kinds::kToHost
                                               ? device->CreateHostStream("reader")
                                               : device->CreateStream("reader"));
  ZERO_ASSIGN_OR_RETURN(const auto written, device->CreateEvent());
  ZERO_ASSIGN_OR_RETURN(const auto other, device->CreateEvent());

  ZERO_RETURN_IF_ERROR(other->Record(*writer));
  ZERO_RETURN_IF_ERROR(Enqueue(*writer, [&values] { std::iota(values.begin(), values.end(), 0); }));
  ZERO_RETURN_IF_ERROR(written->Record(*writer));
  // Long enough for the writer to be idle: what is asked now would see its work.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ZERO_RETURN_IF_ERROR(writer->Health());
  ZERO_RETURN_IF_ERROR(reader->Health());
  ZERO_RETURN_IF_ERROR(reader->Wait(*other));
  ZERO_ASSIGN_OR_RETURN(const zero::Buffer host,
                        device->AllocateHost(64, zero::MemoryCategory::kHostStaging, "host"));
  if (with_event) ZERO_RETURN_IF_ERROR(reader->Wait(*written));
  ZERO_RETURN_IF_ERROR(Enqueue(*reader, [&values, &sum] {
    // Late enough to read the right values without the event, as such bugs often do.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    sum = std::accumulate(values.begin(), values.end(), 0);
  }));
  ZERO_RETURN_IF_ERROR(reader->Synchronize());
  ZERO_RETURN_IF_ERROR(writer->Synchronize());
  std::printf("sum %d\n", sum);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc >= 2 ? argv[1] : "";
  const std::string kinds = argc == 3 ? argv[2] : "device";
  if ((mode != "with_event" && mode != "without_event") ||
      (kinds != "device" && kinds != "from_host" && kinds != "to_host")) {
    std::fprintf(stderr,
                 "usage: planted_cuda_race with_event|without_event [device|from_host|to_host]\n");
    return 2;
  }
  const absl::Status status =
      HandOver(mode == "with_event", kinds == "device"      ? Kinds::kDevice
                                     : kinds == "from_host" ? Kinds::kFromHost
                                                            : Kinds::kToHost);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
