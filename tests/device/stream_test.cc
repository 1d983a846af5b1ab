#include "device/stream.h"

#include <atomic>
#include <string>
#include <vector>

#include "tests/device/device_test_util.h"

namespace zero::test {
namespace {

TEST_CASE("Stream: operations run one after the other, in the order enqueued", "[device][thread]") {
  HostDevice device;
  const auto stream = NewStream(device, "ordered");
  std::vector<int> seen;  // no lock: the order of the stream is what protects it
  for (int i = 0; i < 500; ++i) {
    REQUIRE_OK(stream->Enqueue("append", [&seen, i] {
      seen.push_back(i);
      return absl::OkStatus();
    }));
  }
  REQUIRE_OK(stream->Synchronize());
  REQUIRE(seen.size() == 500);
  for (int i = 0; i < 500; ++i) REQUIRE(seen[i] == i);
}

TEST_CASE("Stream: a wait holds back what is enqueued later, and nothing before it",
          "[device][thread]") {
  HostDevice device;
  const auto producer = NewStream(device, "producer");
  const auto consumer = NewStream(device, "consumer");
  const auto produced = NewEvent(device);
  const auto before = NewEvent(device);
  Door door;
  int value = 0;
  int seen = -1;
  REQUIRE_OK(door.Block(*producer));
  REQUIRE_OK(producer->Enqueue("produce", [&value] {
    value = 42;
    return absl::OkStatus();
  }));
  REQUIRE_OK(produced->Record(*producer));
  REQUIRE_OK(before->Record(*consumer));
  REQUIRE_OK(consumer->Wait(*produced));
  REQUIRE_OK(consumer->Enqueue("consume", [&] {
    seen = value;
    return absl::OkStatus();
  }));
  CHECK_OK(before->Synchronize(absl::InfiniteDuration()));
  CHECK(!produced->Reached());
  door.Open();
  REQUIRE_OK(consumer->Synchronize());
  CHECK(seen == 42);
}

TEST_CASE("Stream: many streams may wait for one event", "[device][thread]") {
  HostDevice device;
  const auto producer = NewStream(device, "producer");
  const auto event = NewEvent(device);
  int value = 0;
  REQUIRE_OK(producer->Enqueue("produce", [&value] {
    Sleep(5);
    value = 7;
    return absl::OkStatus();
  }));
  REQUIRE_OK(event->Record(*producer));
  std::vector<int> seen(5, 0);
  std::vector<std::unique_ptr<Stream>> consumers;
  for (int i = 0; i < 5; ++i) {
    consumers.push_back(NewStream(device, "consumer"));
    REQUIRE_OK(consumers.back()->Wait(*event));
    REQUIRE_OK(consumers.back()->Enqueue("consume", [&, i] {
      seen[i] = value;
      return absl::OkStatus();
    }));
  }
  consumers.clear();  // drains
  CHECK(seen == std::vector<int>(5, 7));
}

TEST_CASE("Stream: destruction runs everything that was enqueued", "[device][thread]") {
  HostDevice device;
  std::atomic<int> ran{0};
  {
    const auto stream = NewStream(device, "drained");
    for (int i = 0; i < 100; ++i) {
      REQUIRE_OK(stream->Enqueue("count", [&ran] {
        ++ran;
        return absl::OkStatus();
      }));
    }
  }
  CHECK(ran == 100);
}

TEST_CASE("Stream: what an operation holds is released before a later event is reached",
          "[device][thread]") {
  HostDevice device;
  const auto stream = NewStream(device, "holding");
  const auto event = NewEvent(device);
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  REQUIRE_OK(stream->Enqueue("hold", [held = std::move(held)] { return absl::OkStatus(); }));
  REQUIRE_OK(event->Record(*stream));
  CHECK_OK(event->Synchronize(absl::InfiniteDuration()));
  CHECK(watch.expired());
}

TEST_CASE("Stream: a blocked Synchronize is one host wait, a poll is none", "[device][thread]") {
  HostDevice device;
  const auto stream = NewStream(device, "waited");
  const auto event = NewEvent(device);
  REQUIRE_OK(event->Record(*stream));
  while (!event->Reached()) Sleep(1);
  CHECK_OK(event->Synchronize(absl::InfiniteDuration()));
  CHECK(stream->Health().ok());
  CHECK(device.host_waits() == 0);

  REQUIRE_OK(stream->Enqueue("slow", [] {
    Sleep(20);
    return absl::OkStatus();
  }));
  CHECK_OK(stream->Synchronize());
  CHECK(device.host_waits() == 1);
}

TEST_CASE("Stream: hooks see each operation before it runs, with the names", "[device][thread]") {
  std::vector<std::string> seen;  // one stream: no lock
  HostDevice::Options options;
  options.hook = [&seen](const std::string& stream, const char* operation) {
    seen.push_back(stream + "/" + operation);
    return absl::OkStatus();
  };
  HostDevice device(options);
  {
    const auto stream = NewStream(device, "s");
    const auto event = NewEvent(device);
    REQUIRE_OK(stream->Enqueue("a", [&seen] {
      seen.push_back("a runs");
      return absl::OkStatus();
    }));
    REQUIRE_OK(event->Record(*stream));
    REQUIRE_OK(stream->Wait(*event));
  }
  CHECK(seen == std::vector<std::string>{"s/a", "a runs", "s/record", "s/wait"});
}

TEST_CASE("Stream: delays of a hook change no result", "[device][thread]") {
  HostDevice::Options options;
  options.hook = [](const std::string& stream, const char*) {
    if (stream == "slow") Sleep(2);
    return absl::OkStatus();
  };
  HostDevice device(options);
  const auto slow = NewStream(device, "slow");
  const auto fast = NewStream(device, "fast");
  const auto event = NewEvent(device);
  int value = 0;
  for (int i = 0; i < 10; ++i) {
    const Stream& writer = i % 2 == 0 ? *slow : *fast;
    const Stream& next = i % 2 == 0 ? *fast : *slow;
    REQUIRE_OK(writer.Enqueue("step", [&value, i] {
      value = 3 * value + i;
      return absl::OkStatus();
    }));
    REQUIRE_OK(event->Record(writer));
    REQUIRE_OK(next.Wait(*event));
  }
  REQUIRE_OK(slow->Synchronize());
  int expected = 0;
  for (int i = 0; i < 10; ++i) expected = 3 * expected + i;
  CHECK(value == expected);
}

TEST_CASE("Stream: an operation past its deadline expires once, and may become ready late",
          "[device][thread]") {
  HostDevice device;
  const auto stream = NewStream(device, "expiring");
  auto gate = std::make_shared<Gate>();
  bool ready = false;
  int expired = 0;
  bool ran = false;
  const auto enqueue = [&](absl::Duration deadline) {
    Operation operation;
    operation.name = "late";
    operation.gate = gate;
    operation.ready = [&ready] { return ready; };
    operation.deadline = deadline;
    operation.expire = [&] {
      ++expired;
      std::lock_guard<std::mutex> lock(gate->mutex);
      ready = true;
    };
    operation.run = [&ran] {
      ran = true;
      return absl::OkStatus();
    };
    return stream->Enqueue(std::move(operation));
  };
  REQUIRE_OK(enqueue(absl::Milliseconds(20)));
  REQUIRE_OK(stream->Synchronize());
  CHECK(expired == 1);
  CHECK(ran);
  ran = false;
  // Ready at once: does not expire. Nor does a limit that no clock can hold.
  REQUIRE_OK(enqueue(absl::Milliseconds(0)));
  REQUIRE_OK(enqueue(absl::Hours(1e9)));
  REQUIRE_OK(stream->Synchronize());
  CHECK(expired == 1);
  CHECK(ran);
}

TEST_CASE("Stream: a time limit of ages is no limit, not one that has passed", "[device][thread]") {
  HostDevice device;
  const auto stream = NewStream(device, "patient");
  auto gate = std::make_shared<Gate>();
  bool ready = false;
  bool expired = false;
  Operation operation;
  operation.gate = gate;
  operation.ready = [&ready] { return ready; };
  operation.deadline = absl::Hours(1e9);
  operation.expire = [&expired] { expired = true; };
  REQUIRE_OK(stream->Enqueue(std::move(operation)));
  Sleep(20);
  {
    std::lock_guard<std::mutex> lock(gate->mutex);
    ready = true;
  }
  gate->changed.notify_all();
  REQUIRE_OK(stream->Synchronize());
  CHECK(!expired);
}

}  // namespace
}  // namespace zero::test
