#include "device/stream.h"

#include <atomic>
#include <string>
#include <vector>

#include "tests/device/device_test_util.h"

namespace zero::test {
namespace {

TEST_CASE("Stream: operations run one after the other, in the order enqueued", "[device][thread]") {
  TestDevice device;
  const auto stream = NewStream(device, "ordered");
  std::vector<int> seen;  // no lock: the order of the stream is what protects it
  for (int i = 0; i < 500; ++i) {
    REQUIRE_OK(Run(*stream, [&seen, i] { seen.push_back(i); }));
  }
  REQUIRE_OK(stream->Synchronize());
  REQUIRE(seen.size() == 500);
  for (int i = 0; i < 500; ++i) REQUIRE(seen[i] == i);
}

TEST_CASE("Stream: a wait holds back what is enqueued later, and nothing before it",
          "[device][thread]") {
  TestDevice device;
  const auto producer = NewStream(device, "producer");
  const auto consumer = NewStream(device, "consumer");
  const auto produced = NewEvent(device);
  const auto before = NewEvent(device);
  Door door;
  int value = 0;
  int seen = -1;
  REQUIRE_OK(door.Block(*producer));
  REQUIRE_OK(Run(*producer, [&value] { value = 42; }));
  REQUIRE_OK(produced->Record(*producer));
  REQUIRE_OK(before->Record(*consumer));
  REQUIRE_OK(consumer->Wait(*produced));
  REQUIRE_OK(Run(*consumer, [&] { seen = value; }));
  CHECK_OK(before->Synchronize(absl::InfiniteDuration()));
  CHECK(!produced->Reached());
  door.Open();
  REQUIRE_OK(consumer->Synchronize());
  CHECK(seen == 42);
}

TEST_CASE("Stream: many streams may wait for one event", "[device][thread]") {
  TestDevice device;
  const auto producer = NewStream(device, "producer");
  const auto event = NewEvent(device);
  int value = 0;
  REQUIRE_OK(Run(*producer, [&value] {
    Sleep(5);
    value = 7;
  }));
  REQUIRE_OK(event->Record(*producer));
  std::vector<int> seen(5, 0);
  std::vector<std::unique_ptr<Stream>> consumers;
  for (int i = 0; i < 5; ++i) {
    consumers.push_back(NewStream(device, "consumer"));
    REQUIRE_OK(consumers.back()->Wait(*event));
    REQUIRE_OK(Run(*consumers.back(), [&, i] { seen[i] = value; }));
  }
  consumers.clear();  // drains
  CHECK(seen == std::vector<int>(5, 7));
}

TEST_CASE("Stream: destruction runs everything that was enqueued", "[device][thread]") {
  TestDevice device;
  std::atomic<int> ran{0};
  {
    const auto stream = NewStream(device, "drained");
    for (int i = 0; i < 100; ++i) {
      REQUIRE_OK(Run(*stream, [&ran] { ++ran; }));
    }
  }
  CHECK(ran == 100);
}

TEST_CASE("Stream: what an operation holds is released before a later event is reached",
          "[device][thread]") {
  TestDevice device;
  const auto stream = NewStream(device, "holding");
  const auto event = NewEvent(device);
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  REQUIRE_OK(Run(*stream, [held = std::move(held)] {}));
  REQUIRE_OK(event->Record(*stream));
  CHECK_OK(event->Synchronize(absl::InfiniteDuration()));
  CHECK(watch.expired());
}

TEST_CASE("Stream: a blocked Synchronize is one host wait, a poll is none", "[device][thread]") {
  TestDevice device;
  const auto stream = NewStream(device, "waited");
  const auto event = NewEvent(device);
  REQUIRE_OK(event->Record(*stream));
  while (!event->Reached()) device->Yield();
  CHECK_OK(event->Synchronize(absl::InfiniteDuration()));
  CHECK(stream->Health().ok());
  CHECK(device->host_waits() == 0);

  Door door;
  absl::Status waited = absl::UnknownError("never returned");
  REQUIRE_OK(door.Block(*stream));
  RunThreads(device, {[&] { waited = stream->Synchronize(); },
                      [&] {
                        while (device->host_waits() == 0) device->Yield();
                        door.Open();
                      }});
  CHECK_OK(waited);
  CHECK(device->host_waits() == 1);
}

}  // namespace
}  // namespace zero::test
