// A host device at the end of a slow link. Times are bounded from below only: a copy lasts as long
// as its bytes take, and what does not wait for it is not held up by it.
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>

#include "device/seeded_scheduler.h"
#include "tests/device/device_test_util.h"

namespace zero::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBytes = 100000;

// One device, and memory on both sides of its link.
struct Linked {
  explicit Linked(HostDevice::Options::Link link, std::shared_ptr<Scheduler> scheduler = nullptr)
      : device({.scheduler = std::move(scheduler), .link = link}) {
    for (Buffer* buffer : {&near, &near2}) {
      auto made = device.AllocateHost(kBytes, MemoryCategory::kHostStates, "near");
      REQUIRE_OK(made.status());
      *buffer = *std::move(made);
    }
    for (Buffer* buffer : {&far, &far2}) {
      auto made = device.Allocate(kBytes, MemoryCategory::kOther, "far");
      REQUIRE_OK(made.status());
      *buffer = *std::move(made);
    }
  }
  HostDevice device;
  Buffer near;
  Buffer near2;
  Buffer far;
  Buffer far2;
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// At 2 MB/s kBytes take 50 ms.
constexpr double kSpeed = 2e6;
constexpr double kSeconds = kBytes / kSpeed;

TEST_CASE("Host link: a copy lasts as long as its bytes take and is exact", "[device][thread]") {
  Linked linked({.to_device = kSpeed, .from_device = kSpeed / 2});
  const auto stream = NewStream(linked.device, "copies");
  std::iota(linked.near.as<uint8_t>(), linked.near.as<uint8_t>() + kBytes, uint8_t{3});
  Clock::time_point start = Clock::now();
  REQUIRE_OK(linked.device.Copy(*stream, linked.far.data(), linked.near.data(), kBytes));
  REQUIRE_OK(stream->Synchronize());
  CHECK(SecondsSince(start) >= kSeconds);
  start = Clock::now();
  // From the middle to the middle.
  REQUIRE_OK(
      linked.device.Copy(*stream, linked.near2.bytes_at(8), linked.far.bytes_at(16), kBytes / 2));
  REQUIRE_OK(stream->Synchronize());
  CHECK(SecondsSince(start) >= kSeconds);
  for (int64_t i = 0; i < kBytes / 2; ++i) {
    REQUIRE(linked.near2.as<uint8_t>()[8 + i] == static_cast<uint8_t>(3 + 16 + i));
  }
}

TEST_CASE("Host link: streams share one direction", "[device][thread]") {
  Linked linked({.to_device = kSpeed});
  const auto a = NewStream(linked.device, "a");
  const auto b = NewStream(linked.device, "b");
  const Clock::time_point start = Clock::now();
  REQUIRE_OK(linked.device.Copy(*a, linked.far.data(), linked.near.data(), kBytes));
  REQUIRE_OK(linked.device.Copy(*b, linked.far2.data(), linked.near2.data(), kBytes));
  REQUIRE_OK(a->Synchronize());
  REQUIRE_OK(b->Synchronize());
  CHECK(SecondsSince(start) >= 2 * kSeconds);
}

// The way that a copy of the other kind goes while one to the device holds the link.
enum class Beside { kFromDevice, kOnTheDevice, kOnTheHost };

TEST_CASE("Host link: the other direction and copies that do not cross are not held up",
          "[device][thread]") {
  for (const Beside beside : {Beside::kFromDevice, Beside::kOnTheDevice, Beside::kOnTheHost}) {
    bool overtook = false;
    // Threads may be late, but not time after time.
    for (int attempt = 0; attempt < 10 && !overtook; ++attempt) {
      Linked linked({.to_device = kSpeed});
      const auto slow = NewStream(linked.device, "slow");
      const auto fast = NewStream(linked.device, "fast");
      const auto end = NewEvent(linked.device);
      REQUIRE_OK(linked.device.Copy(*slow, linked.far.data(), linked.near.data(), kBytes));
      REQUIRE_OK(end->Record(*slow));
      const Buffer& to = beside == Beside::kOnTheDevice ? linked.far2 : linked.near2;
      const Buffer& from = beside == Beside::kOnTheHost ? linked.near : linked.far2;
      REQUIRE_OK(linked.device.Copy(*fast, to.bytes_at(kBytes / 2), from.data(), kBytes / 2));
      REQUIRE_OK(fast->Synchronize());
      overtook = !end->Reached();
      REQUIRE_OK(slow->Synchronize());
    }
    CHECK(overtook);
  }
}

TEST_CASE("Host link: without a speed no copy waits", "[device]") {
  HostLink link(0);
  CHECK(link.Duration(int64_t{1} << 60).count() == 0);
  CHECK(HostLink(-1).Duration(100).count() == 0);
  CHECK(HostLink(1e9).Duration(1).count() == 1);
  CHECK(HostLink(3e9).Duration(1).count() == 1);  // rounded up
  CHECK(HostLink(1e9).Duration(int64_t{1} << 40).count() == int64_t{1} << 40);
  // As long as a clock can hold.
  CHECK(HostLink(1e-300).Duration(int64_t{1} << 60).count() == 1000000000000000000);
}

TEST_CASE("Host link: in virtual time copies take as long and nobody waits", "[device]") {
  // An hour each way, on streams of their own.
  auto scheduler = std::make_shared<SeededScheduler>(
      SeededScheduler::Options{1, /*choose_order=*/false, SeededOrder::kClock});
  Linked linked({.to_device = kBytes / 3600.0, .from_device = kBytes / 3600.0}, scheduler);
  const auto in = NewStream(linked.device, "in");
  const auto out = NewStream(linked.device, "out");
  REQUIRE_OK(linked.device.Copy(*in, linked.far.data(), linked.near.data(), kBytes));
  REQUIRE_OK(linked.device.Copy(*out, linked.near2.data(), linked.far2.data(), kBytes));
  REQUIRE_OK(in->Synchronize());
  REQUIRE_OK(out->Synchronize());
  CHECK(scheduler->now_us() >= 3600e6);
  CHECK(scheduler->now_us() < 3601e6);
}

}  // namespace
}  // namespace zero::test
