// The contract suite's implementation: the host device.
#include "device/host_device.h"
#include "tests/device/device_test_util.h"

namespace zero::test {

const Implementation& Tested() {
  static const Implementation* const host = new Implementation{
      .begin = [] { return nullptr; },
      .make =
          [](int64_t capacity) {
            HostDevice::Options options;
            options.capacity = capacity;
            return std::make_unique<HostDevice>(options);
          },
      .run =
          [](const Stream& stream, std::function<void()> work) {
            return stream.Enqueue("test", [work = std::move(work)] {
              work();
              return absl::OkStatus();
            });
          },
      .block = [](const Stream& stream, Door& door) { return stream.Enqueue(door.Blocked()); },
      .fail =
          [](const Stream& stream) {
            return stream.Enqueue("fails", [] { return absl::DataLossError("planted"); });
          },
      .failure = "planted"};
  return *host;
}

}  // namespace zero::test
