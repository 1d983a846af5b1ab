// A hand-over of memory from one stream to another: with an event, or with the event left out, so
// that ThreadSanitizer has something to find. "sum 499500" is the right result.
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "device/host_device.h"
#include "device/status.h"

namespace {

absl::Status HandOver(bool with_event) {
  std::vector<int> values(1000, 0);
  int sum = 0;
  zero::HostDevice device;
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<zero::Stream> writer, device.CreateStream("writer"));
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<zero::Stream> reader, device.CreateStream("reader"));
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<zero::Event> written, device.CreateEvent());

  ZERO_RETURN_IF_ERROR(writer->Enqueue("write", [&values] {
    std::iota(values.begin(), values.end(), 0);
    return absl::OkStatus();
  }));
  ZERO_RETURN_IF_ERROR(written->Record(*writer));
  if (with_event) ZERO_RETURN_IF_ERROR(reader->Wait(*written));
  ZERO_RETURN_IF_ERROR(reader->Enqueue("read", [&values, &sum] {
    // Late enough to read the right values without the event, as such bugs often do.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    sum = std::accumulate(values.begin(), values.end(), 0);
    return absl::OkStatus();
  }));
  ZERO_RETURN_IF_ERROR(reader->Synchronize());
  ZERO_RETURN_IF_ERROR(writer->Synchronize());
  std::printf("sum %d\n", sum);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
  if (mode != "with_event" && mode != "without_event") {
    std::fprintf(stderr, "usage: planted_race with_event | without_event\n");
    return 2;
  }
  const absl::Status status = HandOver(mode == "with_event");
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
