// Copies and fills.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/device/device_test_util.h"

namespace zero::test {
namespace {

TEST_CASE("Copy: copies and fills of any size are exact, to the device, on it and back",
          "[device][thread]") {
  TestDevice device;
  const auto stream = NewStream(device, "copies");
  for (const int64_t bytes : {1, 63, 4097, (3 << 20) + 5}) {
    CAPTURE(bytes);
    const Buffer from = NewHostBuffer(device, bytes);
    std::iota(from.as<uint8_t>(), from.as<uint8_t>() + bytes, uint8_t{1});
    const std::vector<uint8_t> expected(from.as<uint8_t>(), from.as<uint8_t>() + bytes);
    const Buffer first = NewBuffer(device, bytes + 1);
    const Buffer second = NewBuffer(device, bytes + 1);
    REQUIRE_OK(device->Fill(*stream, second.data(), 7, bytes + 1));
    REQUIRE_OK(device->Copy(*stream, first.data(), from.data(), bytes));
    REQUIRE_OK(device->Copy(*stream, second.data(), first.data(), bytes));
    std::vector<uint8_t> seen = ReadBack(device, *stream, second.data(), bytes + 1);
    CHECK(seen.back() == 7);
    seen.pop_back();
    CHECK(seen == expected);
    REQUIRE_OK(device->Fill(*stream, second.data(), 0xAB, bytes));
    seen = ReadBack(device, *stream, second.data(), bytes + 1);
    CHECK(seen.back() == 7);
    seen.pop_back();
    CHECK(seen == std::vector<uint8_t>(static_cast<size_t>(bytes), 0xAB));
  }
}

TEST_CASE("Copy: memory of the trainer may be copied from and to", "[device]") {
  TestDevice device;
  const auto stream = NewStream(device, "copies");
  const Buffer buffer = NewBuffer(device, 100);
  std::vector<uint8_t> mine(100);
  std::iota(mine.begin(), mine.end(), uint8_t{9});
  std::vector<uint8_t> back(100, 0);
  REQUIRE_OK(device->Copy(*stream, buffer.data(), mine.data(), 100));
  REQUIRE_OK(device->Copy(*stream, back.data(), buffer.data(), 100));
  REQUIRE_OK(stream->Synchronize());
  CHECK(back == mine);
}

TEST_CASE("Copy: sizes below zero are refused, and zero bytes are nothing", "[device]") {
  TestDevice device;
  const auto stream = NewStream(device, "copies");
  CHECK(absl::IsInvalidArgument(device->Copy(*stream, nullptr, nullptr, -1)));
  CHECK(absl::IsInvalidArgument(device->Fill(*stream, nullptr, 0, -8)));
  CHECK_OK(device->Copy(*stream, nullptr, nullptr, 0));
  CHECK_OK(device->Fill(*stream, nullptr, 0, 0));
  CHECK_OK(stream->Synchronize());
}

TEST_CASE("Copy: bytes that cross between the host and the device are counted by direction",
          "[device]") {
  TestDevice device;
  const auto stream = NewStream(device, "copies");
  const Buffer buffer = NewBuffer(device, 1000);
  std::vector<uint8_t> mine(300);
  {
    const Buffer host = NewHostBuffer(device, 1000);
    REQUIRE_OK(device->Copy(*stream, buffer.data(), host.data(), 1000));
    // Wherever in a buffer it begins, up to its last byte.
    REQUIRE_OK(device->Copy(*stream, buffer.data(), host.bytes_at(999), 1));
    REQUIRE_OK(device->Copy(*stream, host.bytes_at(500), buffer.bytes_at(7), 20));
    // Neither of them crosses.
    REQUIRE_OK(device->Copy(*stream, host.data(), host.bytes_at(900), 100));
    REQUIRE_OK(device->Copy(*stream, buffer.data(), buffer.bytes_at(900), 100));
    // The trainer's memory counts as the device's, since most of it is.
    REQUIRE_OK(device->Copy(*stream, host.data(), mine.data(), 300));
    REQUIRE_OK(device->Copy(*stream, buffer.data(), mine.data(), 300));
    REQUIRE_OK(stream->Synchronize());
    CHECK(device->bytes_to_device() == 1001);
    CHECK(device->bytes_from_device() == 320);
    CHECK(absl::IsInvalidArgument(device->Copy(*stream, buffer.data(), host.data(), -1)));
  }
  CHECK(device->bytes_to_device() == 1001);
  CHECK(device->bytes_from_device() == 320);
}

TEST_CASE("Stream: ids are never used twice", "[device]") {
  TestDevice device;
  uint64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    const auto stream = NewStream(device, "short-lived");
    CHECK(stream->id() > last);
    CHECK(&stream->device() == &*device);
    CHECK(stream->name() == "short-lived");
    last = stream->id();
  }
}

TEST_CASE("Stream: its reference expires with it", "[device]") {
  TestDevice device;
  std::weak_ptr<const Stream> reference;
  {
    const auto stream = NewStream(device, "referred to");
    reference = stream->reference();
    CHECK(!reference.expired());
  }
  CHECK(reference.expired());
}

TEST_CASE("Stream: events of another kind of device are refused", "[device]") {
  class OtherEvent : public Event {
   public:
    absl::Status Record(const Stream&) override { return absl::OkStatus(); }
    bool recorded() const override { return true; }
    bool Reached() const override { return true; }
    absl::Status Synchronize(absl::Duration) const override { return absl::OkStatus(); }
  };
  TestDevice device;
  const auto stream = NewStream(device, "choosy");
  const absl::Status status = stream->Wait(OtherEvent());
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("'choosy'"));
}

}  // namespace
}  // namespace zero::test
