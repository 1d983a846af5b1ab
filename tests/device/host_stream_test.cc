// Streams of the host: hooks, progress and deadlines, which other kinds of streams do not have.
#include <atomic>
#include <string>
#include <vector>

#include "device/handover.h"
#include "tests/device/device_test_util.h"

namespace zero::test {
namespace {

TEST_CASE("Handover: one stream alone waits for nothing", "[device]") {
  std::atomic<int> waits{0};
  HostDevice::Options options;
  options.hook = [&waits](const std::string&, const char* operation) {
    if (std::string(operation) == "wait") ++waits;
    return absl::OkStatus();
  };
  HostDevice device(options);
  const auto stream = NewStream(device, "alone");
  Handover handover(&device);
  for (int i = 0; i < 5; ++i) {
    REQUIRE_OK(handover.Write(*stream, [] { return absl::OkStatus(); }));
    REQUIRE_OK(handover.Read(*stream, [] { return absl::OkStatus(); }));
  }
  REQUIRE_OK(stream->Synchronize());
  CHECK(waits == 0);
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

TEST_CASE("Host stream: hooks see each operation before it runs, with the names",
          "[device][thread]") {
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

TEST_CASE("Host stream: delays of a hook change no result", "[device][thread]") {
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

TEST_CASE("Host stream: an operation past its deadline expires once, and may become ready late",
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

TEST_CASE("Host stream: a time limit of ages is no limit, not one that has passed",
          "[device][thread]") {
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
