// What becomes of a stream, and of those that wait for it, when an operation fails: what holds on
// every device. On a GPU a failure ends all streams of the device, and calls may be refused at
// once.
#include <atomic>
#include <string>

#include "absl/strings/match.h"
#include "tests/device/device_test_util.h"

namespace zero::test {
namespace {

bool IsTheFailure(const absl::Status& status) {
  return !status.ok() && absl::StrContains(status.message(), Tested().failure);
}

// Enqueued, or refused with the failure.
bool TakenOrRefused(const absl::Status& status) { return status.ok() || IsTheFailure(status); }

TEST_CASE("Failure: the first error of a stream sticks, and later operations are skipped",
          "[device][thread]") {
  TestDevice device;
  const auto stream = NewStream(device, "failing");
  std::atomic<int> ran{0};
  REQUIRE_OK(Run(*stream, [&ran] { ++ran; }));
  REQUIRE_OK(Tested().fail(*stream));
  CHECK(TakenOrRefused(Run(*stream, [&ran] { ++ran; })));
  CHECK(TakenOrRefused(Tested().fail(*stream)));
  CHECK(TakenOrRefused(Run(*stream, [&ran] { ++ran; })));
  const absl::Status status = stream->Synchronize();
  INFO(status.ToString());
  CHECK(IsTheFailure(status));
  CHECK(IsTheFailure(stream->Health()));
  CHECK(stream->Synchronize() == stream->Health());
  CHECK(ran == 1);
}

TEST_CASE("Failure: a stream that waits for a failed one inherits its error", "[device][thread]") {
  TestDevice device;
  const auto first = NewStream(device, "first");
  const auto second = NewStream(device, "second");
  const auto third = NewStream(device, "third");
  const auto a = NewEvent(device);
  const auto b = NewEvent(device);
  std::atomic<bool> ran{false};
  Door door;
  REQUIRE_OK(door.Block(*first));
  REQUIRE_OK(Tested().fail(*first));
  REQUIRE_OK(a->Record(*first));
  REQUIRE_OK(second->Wait(*a));
  REQUIRE_OK(b->Record(*second));
  REQUIRE_OK(third->Wait(*b));
  REQUIRE_OK(Run(*third, [&ran] { ran = true; }));
  CHECK(third->Health().ok());
  door.Open();
  CHECK(IsTheFailure(third->Synchronize()));
  CHECK(IsTheFailure(third->Health()));
  CHECK(!ran);
  CHECK(a->Reached());
  CHECK(IsTheFailure(a->Synchronize(absl::Seconds(20))));
}

TEST_CASE("Failure: events of a failed stream are reached, and its memory may be freed after them",
          "[device][thread]") {
  TestDevice device;
  const auto stream = NewStream(device, "failing");
  const auto event = NewEvent(device);
  {
    const Buffer buffer = NewBuffer(device, 4096);
    REQUIRE_OK(device->Fill(*stream, buffer.data(), 1, 4096));
    REQUIRE_OK(Tested().fail(*stream));
    CHECK(TakenOrRefused(device->Fill(*stream, buffer.data(), 2, 4096)));
    const absl::Status recorded = event->Record(*stream);
    CHECK(TakenOrRefused(recorded));
    if (recorded.ok()) {
      CHECK(IsTheFailure(event->Synchronize(absl::Seconds(20))));
      CHECK(event->Reached());
    }
    CHECK(IsTheFailure(stream->Synchronize()));
  }
  CHECK(UseOf(*device, MemoryCategory::kOther).current == 0);
}

}  // namespace
}  // namespace zero::test
