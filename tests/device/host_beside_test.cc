// Streams of the host beside those of the device.
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "device/handover.h"
#include "tests/device/device_test_util.h"

namespace zero::test {
namespace {

// Work on a stream of either kind.
absl::Status RunOn(const Stream& stream, std::function<void()> work) {
  return stream.device().kind() == DeviceKind::kHost ? RunOnHost(stream, std::move(work))
                                                     : Run(stream, std::move(work));
}

absl::Status FailOnHost(const Stream& stream) {
  return stream.Enqueue("fails", [] { return absl::DataLossError("broken"); });
}

TEST_CASE("Host beside: a stream of the host is one of a host device and runs operations in order",
          "[device][thread]") {
  TestDevice device;
  const auto host = NewHostStream(device, "optimizer");
  const auto other = NewStream(device, "other");
  CHECK(host->name() == "optimizer");
  CHECK(host->device().kind() == DeviceKind::kHost);
  CHECK(host->id() != other->id());
  std::vector<int> seen;
  for (int i = 0; i < 100; ++i) REQUIRE_OK(RunOnHost(*host, [&seen, i] { seen.push_back(i); }));
  const Buffer from = NewHostBuffer(device, 64);
  const Buffer to = NewHostBuffer(device, 64);
  REQUIRE_OK(device->Fill(*host, from.data(), 5, 64));
  REQUIRE_OK(device->Copy(*host, to.data(), from.data(), 64));
  CHECK_OK(host->Synchronize());
  CHECK(host->Health().ok());
  REQUIRE(seen.size() == 100);
  for (int i = 0; i < 100; ++i) REQUIRE(seen[i] == i);
  CHECK(to.as<uint8_t>()[63] == 5);
  CHECK(device->bytes_to_device() + device->bytes_from_device() == 0);
}

TEST_CASE("Host beside: a device stream starts after what a host stream did before the event",
          "[device][thread]") {
  TestDevice device;
  const auto host = NewHostStream(device, "host");
  const auto stream = NewStream(device, "device");
  const auto event = NewEvent(device);
  int value = 0;
  int seen = -1;
  REQUIRE_OK(RunOnHost(*host, [&value] {
    Sleep(20);
    value = 42;
  }));
  REQUIRE_OK(event->Record(*host));
  CHECK(event->recorded());
  REQUIRE_OK(stream->Wait(*event));
  REQUIRE_OK(Run(*stream, [&] { seen = value; }));
  REQUIRE_OK(stream->Synchronize());
  CHECK(seen == 42);
  CHECK(event->Reached());
  CHECK_OK(event->Synchronize(absl::ZeroDuration()));
}

TEST_CASE("Host beside: a host stream starts after what a device stream did before the event",
          "[device][thread]") {
  TestDevice device;
  const auto host = NewHostStream(device, "host");
  const auto stream = NewStream(device, "device");
  const auto event = NewEvent(device);
  int value = 0;
  int seen = -1;
  REQUIRE_OK(Run(*stream, [&value] {
    Sleep(20);
    value = 42;
  }));
  REQUIRE_OK(event->Record(*stream));
  REQUIRE_OK(host->Wait(*event));
  REQUIRE_OK(RunOnHost(*host, [&] { seen = value; }));
  REQUIRE_OK(host->Synchronize());
  CHECK(seen == 42);
}

TEST_CASE("Host beside: host streams wait for one another", "[device][thread]") {
  TestDevice device;
  const auto reads = NewHostStream(device, "reads");
  const auto writes = NewHostStream(device, "writes");
  const auto event = NewEvent(device);
  int value = 0;
  int seen = -1;
  REQUIRE_OK(RunOnHost(*reads, [&value] {
    Sleep(10);
    value = 42;
  }));
  REQUIRE_OK(event->Record(*reads));
  REQUIRE_OK(writes->Wait(*event));
  REQUIRE_OK(RunOnHost(*writes, [&] { seen = value; }));
  REQUIRE_OK(writes->Synchronize());
  CHECK(seen == 42);
}

TEST_CASE("Host beside: an event that was never recorded is refused by host streams", "[device]") {
  TestDevice device;
  const auto host = NewHostStream(device, "choosy");
  const auto event = NewEvent(device);
  const absl::Status status = host->Wait(*event);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("'choosy'"));
  CHECK_OK(host->Synchronize());
}

TEST_CASE("Host beside: a wait of the host keeps its point when the event is recorded again",
          "[device][thread]") {
  TestDevice device;
  const auto first = NewHostStream(device, "first");
  const auto second = NewHostStream(device, "second");
  const auto stream = NewStream(device, "device");
  const auto event = NewEvent(device);
  Door held;
  Door door;
  // Comes to its wait when the event has long been recorded again.
  REQUIRE_OK(first->Enqueue(held.Blocked()));
  REQUIRE_OK(event->Record(*stream));
  REQUIRE_OK(first->Wait(*event));
  REQUIRE_OK(door.Block(*stream));
  REQUIRE_OK(event->Record(*stream));
  REQUIRE_OK(second->Wait(*event));
  std::atomic<bool> second_ran{false};
  REQUIRE_OK(RunOnHost(*second, [&second_ran] { second_ran = true; }));
  held.Open();
  CHECK_OK(first->Synchronize());  // would hang if it waited for the new point
  CHECK(!event->Reached());
  CHECK(!second_ran);
  door.Open();
  CHECK_OK(second->Synchronize());
  CHECK(second_ran);
}

TEST_CASE("Host beside: a wait of the device keeps its point when the event is recorded again",
          "[device][thread]") {
  TestDevice device;
  const auto host = NewHostStream(device, "host");
  const auto early = NewStream(device, "early");
  const auto late = NewStream(device, "late");
  const auto event = NewEvent(device);
  Door door;
  REQUIRE_OK(event->Record(*host));
  REQUIRE_OK(early->Wait(*event));
  REQUIRE_OK(host->Enqueue(door.Blocked()));
  REQUIRE_OK(event->Record(*host));
  REQUIRE_OK(late->Wait(*event));
  std::atomic<bool> late_ran{false};
  REQUIRE_OK(Run(*late, [&late_ran] { late_ran = true; }));
  CHECK_OK(early->Synchronize());
  CHECK(!event->Reached());
  CHECK(absl::IsDeadlineExceeded(event->Synchronize(absl::Milliseconds(1))));
  CHECK(!late_ran);
  door.Open();
  CHECK_OK(late->Synchronize());
  CHECK(late_ran);
}

TEST_CASE("Host beside: one event may be recorded in streams of both kinds in turn",
          "[device][thread]") {
  TestDevice device;
  const auto host = NewHostStream(device, "host");
  const auto stream = NewStream(device, "device");
  const auto event = NewEvent(device);
  int value = 0;
  for (int round = 0; round < 30; ++round) {
    const Stream& writer = round % 2 == 0 ? *host : *stream;
    const Stream& next = round % 2 == 0 ? *stream : *host;
    REQUIRE_OK(RunOn(writer, [&value, round] { value = 3 * value % 1000 + round; }));
    REQUIRE_OK(event->Record(writer));
    REQUIRE_OK(next.Wait(*event));
  }
  REQUIRE_OK(host->Synchronize());
  int expected = 0;
  for (int round = 0; round < 30; ++round) expected = 3 * expected % 1000 + round;
  CHECK(value == expected);
}

TEST_CASE("Host beside: a thousand hand-overs in a ring are all in order", "[device][thread]") {
  TestDevice device;
  const auto copies = NewStream(device, "copies");
  const auto optimizer = NewHostStream(device, "optimizer");
  const auto writes = NewHostStream(device, "writes");
  const auto back = NewStream(device, "back");
  const Stream* const ring[] = {copies.get(), optimizer.get(), writes.get(), back.get()};
  constexpr int kSlots = 3;
  std::vector<Handover> handovers;
  for (int s = 0; s < kSlots; ++s) handovers.emplace_back(&*device);
  int values[kSlots] = {};
  std::atomic<int> wrong{0};
  for (int use = 0; use < 1000; ++use) {
    const int slot = use % kSlots;
    // Each slot goes round the ring, read by the next stream and written by the one after.
    const Stream& writer = *ring[use / kSlots % 4];
    const Stream& reader = *ring[(use / kSlots + 1) % 4];
    REQUIRE_OK(handovers[slot].Write(writer, [&] {
      return RunOn(writer, [&values, slot, use] {
        if (use % 97 == 0) Sleep(1);
        values[slot] = use;
      });
    }));
    REQUIRE_OK(handovers[slot].Read(reader, [&] {
      return RunOn(reader, [&values, &wrong, slot, use] {
        if (use % 89 == 0) Sleep(1);
        wrong += values[slot] == use ? 0 : 1;
      });
    }));
  }
  for (const Stream* stream : ring) REQUIRE_OK(stream->Synchronize());
  CHECK(wrong == 0);
}

TEST_CASE("Host beside: events and streams may go before those that wait for them",
          "[device][thread]") {
  TestDevice device;
  const auto stream = NewStream(device, "device");
  const auto stays = NewHostStream(device, "stays");
  std::atomic<bool> wrote{false};
  bool seen = false;
  Door door;
  REQUIRE_OK(door.Block(*stream));
  {
    const auto host = NewHostStream(device, "host");
    const auto event = NewEvent(device);
    REQUIRE_OK(RunOnHost(*host, [&wrote] { wrote = true; }));
    REQUIRE_OK(event->Record(*host));
    REQUIRE_OK(stream->Wait(*event));
  }
  {
    const auto event = NewEvent(device);
    REQUIRE_OK(event->Record(*stream));
    REQUIRE_OK(stays->Wait(*event));
    REQUIRE_OK(RunOnHost(*stays, [&] { seen = wrote; }));
  }
  // Another stream of the host in the place of the first.
  const auto another = NewHostStream(device, "another");
  const auto event = NewEvent(device);
  REQUIRE_OK(event->Record(*another));
  REQUIRE_OK(stream->Wait(*event));
  door.Open();
  CHECK_OK(stays->Synchronize());
  CHECK_OK(stream->Synchronize());
  CHECK(seen);
}

TEST_CASE("Host beside: a failed host stream reaches its events and is inherited by host streams",
          "[device][thread]") {
  TestDevice device;
  const auto failing = NewHostStream(device, "failing");
  const auto heir = NewHostStream(device, "heir");
  const auto stream = NewStream(device, "device");
  const auto event = NewEvent(device);
  const auto passed = NewEvent(device);
  std::atomic<bool> ran{false};
  std::atomic<bool> told{false};
  std::atomic<bool> told_before{false};
  REQUIRE_OK(failing->Enqueue("fails", [&told] {
    Sleep(10);
    told = true;  // as one that aborts a group does
    return absl::DataLossError("broken");
  }));
  REQUIRE_OK(event->Record(*failing));
  REQUIRE_OK(heir->Wait(*event));
  REQUIRE_OK(RunOnHost(*heir, [&ran] { ran = true; }));
  REQUIRE_OK(stream->Wait(*event));
  // Where the device is not the host it goes on, but not before the failure was told.
  REQUIRE_OK(Run(*stream, [&] { told_before = told.load(); }));
  REQUIRE_OK(passed->Record(*stream));
  const absl::Status status = passed->Synchronize(absl::InfiniteDuration());
  CHECK(passed->Reached());
  CHECK(event->Reached());
  CHECK(event->Synchronize(absl::Seconds(20)).message() == "broken");
  CHECK(heir->Synchronize().message() == "broken");
  CHECK(heir->Health().message() == "broken");
  CHECK(failing->Health().message() == "broken");
  CHECK(!ran);
  if (device->kind() == DeviceKind::kHost) {
    CHECK(status.message() == "broken");
  } else {
    CHECK_OK(status);
    CHECK(told_before);
  }
}

TEST_CASE("Host beside: a failed host stream still waits for the device before its later events",
          "[device][thread]") {
  TestDevice device;
  const auto failed = NewHostStream(device, "failed");
  const auto busy = NewStream(device, "busy");
  const auto used = NewEvent(device);
  const auto free = NewEvent(device);
  Door door;
  std::atomic<bool> finished{false};
  REQUIRE_OK(FailOnHost(*failed));
  CHECK(!failed->Synchronize().ok());
  REQUIRE_OK(door.Block(*busy));
  REQUIRE_OK(Run(*busy, [&finished] { finished = true; }));
  REQUIRE_OK(used->Record(*busy));
  REQUIRE_OK(failed->Wait(*used));
  REQUIRE_OK(free->Record(*failed));
  Sleep(10);
  CHECK(!free->Reached());
  door.Open();
  CHECK(free->Synchronize(absl::InfiniteDuration()).message() == "broken");
  CHECK(finished);
  CHECK_OK(busy->Synchronize());
}

TEST_CASE("Failure: a host stream that waits for a failed device stream inherits its error",
          "[device][thread]") {
  TestDevice device;
  const auto stream = NewStream(device, "failing");
  const auto host = NewHostStream(device, "host");
  const auto event = NewEvent(device);
  std::atomic<bool> ran{false};
  Door door;
  REQUIRE_OK(door.Block(*stream));
  REQUIRE_OK(Tested().fail(*stream));
  REQUIRE_OK(event->Record(*stream));
  REQUIRE_OK(host->Wait(*event));
  REQUIRE_OK(RunOnHost(*host, [&ran] { ran = true; }));
  door.Open();
  const absl::Status status = host->Synchronize();
  CHECK(!status.ok());
  CHECK(absl::StrContains(status.message(), Tested().failure));
  CHECK(!ran);
}

}  // namespace
}  // namespace zero::test
