// The contract suite's implementation: the host device in orders that seeds choose, another for
// each device.
#include "device/host_device.h"
#include "device/seeded_scheduler.h"
#include "tests/device/device_test_util.h"
#include "tests/device/seeds.h"

namespace zero::test {
namespace {

std::shared_ptr<SeededScheduler>& Current() {
  static auto* const current = new std::shared_ptr<SeededScheduler>;
  return *current;
}

std::unique_ptr<Device> Make(int64_t capacity) {
  static uint64_t made = 0;
  Current() = std::make_shared<SeededScheduler>(Seeds(1, 1)[0] + made++);
  HostDevice::Options options;
  options.capacity = capacity;
  options.scheduler = Current();
  return std::make_unique<HostDevice>(options);
}

}  // namespace

const Implementation& Tested() {
  static const Implementation* const seeded = new Implementation{
      .begin = [] { return nullptr; },
      .make = Make,
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
      .failure = "planted",
      .run_threads =
          [](Device&, const std::vector<std::function<void()>>& bodies) {
            REQUIRE_OK(Current()->RunDrivers(bodies));
          }};
  return *seeded;
}

}  // namespace zero::test
