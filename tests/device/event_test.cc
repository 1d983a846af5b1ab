#include "device/event.h"

#include <atomic>
#include <thread>
#include <vector>

#include "tests/device/device_test_util.h"

namespace zero::test {
namespace {

TEST_CASE("Event: waiting for one that was never recorded is refused", "[device]") {
  HostDevice device;
  const auto stream = NewStream(device, "compute");
  const auto event = NewEvent(device);
  const absl::Status status = stream->Wait(*event);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("'compute'"));
  CHECK(absl::IsFailedPrecondition(event->Synchronize(absl::InfiniteDuration())));
  CHECK(!event->recorded());
  CHECK(!event->Reached());
  CHECK_OK(stream->Synchronize());
}

TEST_CASE("Event: recording again moves the point, and earlier waits keep the old one",
          "[device][thread]") {
  HostDevice device;
  const auto writer = NewStream(device, "writer");
  const auto early = NewStream(device, "early");
  const auto late = NewStream(device, "late");
  const auto event = NewEvent(device);
  Door door;
  REQUIRE_OK(event->Record(*writer));
  REQUIRE_OK(early->Wait(*event));
  REQUIRE_OK(door.Block(*writer));
  REQUIRE_OK(event->Record(*writer));
  REQUIRE_OK(late->Wait(*event));
  std::atomic<bool> late_ran{false};
  REQUIRE_OK(late->Enqueue("late", [&late_ran] {
    late_ran = true;
    return absl::OkStatus();
  }));
  CHECK_OK(early->Synchronize());  // would hang if it waited for the new point
  CHECK(!event->Reached());
  CHECK(!late_ran);
  door.Open();
  CHECK_OK(late->Synchronize());
  CHECK(late_ran);
}

TEST_CASE("Event: Synchronize gives up when no stream gets on for the time limit",
          "[device][thread]") {
  HostDevice device;
  const auto stream = NewStream(device, "stuck");
  const auto event = NewEvent(device);
  Door door;
  REQUIRE_OK(door.Block(*stream));
  REQUIRE_OK(event->Record(*stream));
  const absl::Status status = event->Synchronize(absl::Milliseconds(30));
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("30ms"));
  CHECK(device.host_waits() == 1);
  door.Open();
  CHECK_OK(event->Synchronize(absl::Seconds(20)));
}

TEST_CASE("Event: slow work that gets on is no silence", "[device][thread]") {
  HostDevice device;
  const auto stream = NewStream(device, "slow");
  const auto event = NewEvent(device);
  for (int i = 0; i < 40; ++i) {
    REQUIRE_OK(stream->Enqueue("slow", [] {
      Sleep(20);
      return absl::OkStatus();
    }));
  }
  REQUIRE_OK(event->Record(*stream));
  // Longer than one operation takes, on a busy machine too; half as long as all take.
  CHECK_OK(event->Synchronize(absl::Milliseconds(400)));
}

TEST_CASE("Event: any number of threads may wait for it", "[device][thread]") {
  HostDevice device;
  const auto stream = NewStream(device, "waited");
  const auto event = NewEvent(device);
  Door door;
  REQUIRE_OK(door.Block(*stream));
  REQUIRE_OK(event->Record(*stream));
  std::atomic<int> woken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const absl::Duration limit = i % 2 == 0 ? absl::InfiniteDuration() : absl::Hours(1e9);
      if (event->Synchronize(limit).ok() && event->Reached()) ++woken;
    });
  }
  Sleep(5);
  door.Open();
  for (std::thread& thread : threads) thread.join();
  CHECK(woken == 4);
}

TEST_CASE("Event: it may go before the streams that wait for it", "[device][thread]") {
  HostDevice device;
  const auto writer = NewStream(device, "writer");
  const auto reader = NewStream(device, "reader");
  Door door;
  REQUIRE_OK(door.Block(*writer));
  {
    const auto event = NewEvent(device);
    REQUIRE_OK(event->Record(*writer));
    REQUIRE_OK(reader->Wait(*event));
  }
  door.Open();
  CHECK_OK(reader->Synchronize());
}

}  // namespace
}  // namespace zero::test
