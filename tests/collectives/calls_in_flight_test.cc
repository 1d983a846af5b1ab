#include "collectives/calls_in_flight.h"

#include <atomic>
#include <future>
#include <memory>
#include <thread>

#include "device/host_device.h"
#include "tests/catch.h"
#include "tests/collectives/rendezvous_test_util.h"

namespace zero::test {
namespace {

// A device whose events answer when it lets them, as a driver that is busy does.
class SlowDevice : public HostDevice {
 public:
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    return std::unique_ptr<Event>(new SlowEvent(this));
  }

  std::atomic<bool> hold = false;
  std::atomic<bool> reached = false;
  std::atomic<int> waiting = 0;

 private:
  class SlowEvent : public Event {
   public:
    explicit SlowEvent(SlowDevice* device) : device_(device) {}
    absl::Status Record(const Stream&) override { return absl::OkStatus(); }
    bool recorded() const override { return true; }
    bool Reached() const override {
      ++device_->waiting;
      while (device_->hold) std::this_thread::yield();
      --device_->waiting;
      return device_->reached;
    }
    absl::Status Synchronize(absl::Duration) const override { return absl::OkStatus(); }

   private:
    SlowDevice* const device_;
  };
};

void Make(CallsInFlight& calls, const Stream& stream, const std::string& what) {
  auto call = calls.Begin(stream, what, absl::Seconds(1));
  REQUIRE_OK(call.status());
  REQUIRE_OK(calls.End(stream, *std::move(call)));
}

TEST_CASE("CallsInFlight: the standing is told while the device is being asked",
          "[collectives][thread]") {
  SlowDevice device;
  const auto stream = device.CreateStream("s");
  REQUIRE_OK(stream.status());
  CallsInFlight calls(&device);
  Make(calls, **stream, "gather 'x'");
  device.hold = true;
  std::thread watchdog([&] { (void)calls.Watch(); });
  CHECK(Soon([&] { return device.waiting == 1; }));
  auto told = std::async(std::launch::async, [&] { return calls.standing(); });
  const bool at_once =
      Soon([&] { return told.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  const int waiting = device.waiting;
  device.hold = false;
  watchdog.join();
  CHECK(at_once);
  CHECK(waiting == 1);
  CHECK(told.get().called == 1);
  CHECK(calls.Oldest() == "gather 'x'");
}

TEST_CASE("CallsInFlight: calls that have ended are counted once, whoever looks",
          "[collectives][thread]") {
  SlowDevice device;
  const auto stream = device.CreateStream("s");
  REQUIRE_OK(stream.status());
  CallsInFlight calls(&device);
  std::atomic<bool> done = false;
  device.reached = true;
  std::thread watchdog([&] {
    while (!done) (void)calls.Watch();
  });
  for (int i = 0; i < 2000; ++i) Make(calls, **stream, "gather 'x'");
  done = true;
  watchdog.join();
  (void)calls.Watch();
  const Standing standing = calls.standing();
  CHECK(standing.called == 2000);
  CHECK(standing.begun == 2000);
  CHECK(standing.running.empty());
  CHECK(calls.Oldest().empty());
}

}  // namespace
}  // namespace zero::test
