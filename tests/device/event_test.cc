#include "device/event.h"

#include <atomic>
#include <thread>
#include <vector>

#include "tests/device/device_test_util.h"

namespace zero::test {
namespace {

TEST_CASE("Event: waiting for one that was never recorded is refused", "[device]") {
  TestDevice device;
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
  TestDevice device;
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
  REQUIRE_OK(Run(*late, [&late_ran] { late_ran = true; }));
  CHECK_OK(early->Synchronize());  // would hang if it waited for the new point
  CHECK(!event->Reached());
  CHECK(!late_ran);
  door.Open();
  CHECK_OK(late->Synchronize());
  CHECK(late_ran);
}

TEST_CASE("Event: Synchronize gives up when no stream gets on for the time limit",
          "[device][thread]") {
  TestDevice device;
  const auto stream = NewStream(device, "stuck");
  const auto event = NewEvent(device);
  Door door;
  REQUIRE_OK(door.Block(*stream));
  REQUIRE_OK(event->Record(*stream));
  const absl::Status status = event->Synchronize(absl::Milliseconds(30));
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("30ms"));
  CHECK(device->host_waits() == 1);
  door.Open();
  CHECK_OK(event->Synchronize(absl::Seconds(20)));
}

TEST_CASE("Event: any number of threads may wait for it", "[device][thread]") {
  TestDevice device;
  const auto stream = NewStream(device, "waited");
  const auto event = NewEvent(device);
  Door door;
  REQUIRE_OK(door.Block(*stream));
  REQUIRE_OK(event->Record(*stream));
  std::atomic<int> woken{0};
  std::vector<std::function<void()>> bodies;
  for (int i = 0; i < 4; ++i) {
    bodies.push_back([&, i] {
      const absl::Duration limit = i % 2 == 0 ? absl::InfiniteDuration() : absl::Hours(1e9);
      if (event->Synchronize(limit).ok() && event->Reached()) ++woken;
    });
  }
  bodies.push_back([&] {
    Sleep(5);
    door.Open();
  });
  RunThreads(device, bodies);
  CHECK(woken == 4);
}

TEST_CASE("Event: it may go before the streams that wait for it", "[device][thread]") {
  TestDevice device;
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
