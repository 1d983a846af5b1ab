// What becomes of a host stream, and of those that wait for it, when an operation fails.
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/device/device_test_util.h"

namespace zero::test {
namespace {

absl::Status FailWith(const Stream& stream, const std::string& message) {
  return stream.Enqueue("fails", [message] { return absl::DataLossError(message); });
}

TEST_CASE("Host failure: the first error of a stream sticks, and later operations are skipped",
          "[device][thread]") {
  HostDevice device;
  const auto stream = NewStream(device, "failing");
  std::atomic<int> ran{0};
  const auto count = [&ran] {
    ++ran;
    return absl::OkStatus();
  };
  REQUIRE_OK(stream->Enqueue("before", count));
  REQUIRE_OK(FailWith(*stream, "first"));
  REQUIRE_OK(stream->Enqueue("after", count));
  REQUIRE_OK(FailWith(*stream, "second"));
  REQUIRE_OK(stream->Enqueue("after", count));
  const absl::Status status = stream->Synchronize();
  CHECK(absl::IsDataLoss(status));
  CHECK(status.message() == "first");
  CHECK(stream->Health() == status);
  CHECK(ran == 1);
}

TEST_CASE("Host failure: skip handlers are called with the error instead of the operations",
          "[device][thread]") {
  HostDevice device;
  const auto stream = NewStream(device, "failing");
  std::vector<std::string> seen;
  const auto enqueue = [&](const char* name) {
    Operation operation;
    operation.name = name;
    operation.run = [&seen, name] {
      seen.push_back(std::string(name) + " ran");
      return absl::OkStatus();
    };
    operation.skip = [&seen, name](const absl::Status& reason) {
      seen.push_back(std::string(name) + " skipped: " + std::string(reason.message()));
    };
    return stream->Enqueue(std::move(operation));
  };
  REQUIRE_OK(enqueue("a"));
  REQUIRE_OK(FailWith(*stream, "broken"));
  REQUIRE_OK(enqueue("b"));
  REQUIRE_OK(enqueue("c"));
  CHECK(!stream->Synchronize().ok());
  CHECK(seen == std::vector<std::string>{"a ran", "b skipped: broken", "c skipped: broken"});
}

TEST_CASE("Host failure: an operation that throws fails its stream, and nothing else",
          "[device][thread]") {
  HostDevice device;
  const auto throwing = NewStream(device, "throwing");
  const auto other = NewStream(device, "other");
  REQUIRE_OK(
      throwing->Enqueue("parse", []() -> absl::Status { throw std::runtime_error("bad token"); }));
  const absl::Status status = throwing->Synchronize();
  CHECK(absl::IsInternal(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("'parse' threw: bad token"));
  CHECK_OK(other->Synchronize());

  const auto odd = NewStream(device, "odd");
  REQUIRE_OK(odd->Enqueue("odd", []() -> absl::Status { throw 3; }));
  CHECK(absl::IsInternal(odd->Synchronize()));
}

TEST_CASE("Host failure: an event recorded before the error is reached without it",
          "[device][thread]") {
  HostDevice device;
  const auto stream = NewStream(device, "failing");
  const auto other = NewStream(device, "other");
  const auto event = NewEvent(device);
  REQUIRE_OK(event->Record(*stream));
  REQUIRE_OK(FailWith(*stream, "later"));
  REQUIRE_OK(other->Wait(*event));
  CHECK(!stream->Synchronize().ok());
  CHECK_OK(other->Synchronize());
  CHECK_OK(event->Synchronize(absl::Seconds(20)));
}

TEST_CASE("Host failure: a failed stream still reaches its events after what it waited for",
          "[device][thread]") {
  // Whoever frees memory after such an event must not do so under a stream that still runs.
  HostDevice device;
  const auto failed = NewStream(device, "failed");
  const auto busy = NewStream(device, "busy");
  const auto used = NewEvent(device);
  const auto free = NewEvent(device);
  Door door;
  std::atomic<bool> finished{false};
  REQUIRE_OK(FailWith(*failed, "broken"));
  CHECK(!failed->Synchronize().ok());
  REQUIRE_OK(door.Block(*busy));
  REQUIRE_OK(busy->Enqueue("uses memory", [&finished] {
    finished = true;
    return absl::OkStatus();
  }));
  REQUIRE_OK(used->Record(*busy));
  REQUIRE_OK(failed->Wait(*used));
  REQUIRE_OK(free->Record(*failed));
  Sleep(10);
  CHECK(!free->Reached());
  door.Open();
  CHECK(free->Synchronize(absl::Seconds(20)).message() == "broken");
  CHECK(finished);
  CHECK_OK(busy->Synchronize());
}

TEST_CASE("Host failure: a hook's error is taken for the operation's own", "[device][thread]") {
  HostDevice::Options options;
  options.hook = [](const std::string& stream, const char* operation) -> absl::Status {
    if (stream == "s" && std::string(operation) == "target") {
      return absl::UnavailableError("injected");
    }
    if (std::string(operation) == "throws") throw std::runtime_error("hook");
    return absl::OkStatus();
  };
  HostDevice device(options);
  const auto stream = NewStream(device, "s");
  std::atomic<bool> ran{false};
  std::string skipped;
  Operation target;
  target.name = "target";
  target.run = [&ran] {
    ran = true;
    return absl::OkStatus();
  };
  target.skip = [&skipped](const absl::Status& reason) { skipped = reason.ToString(); };
  REQUIRE_OK(stream->Enqueue(std::move(target)));
  CHECK(absl::IsUnavailable(stream->Synchronize()));
  CHECK(!ran);
  CHECK_THAT(skipped, ContainsSubstring("injected"));

  const auto other = NewStream(device, "other");
  REQUIRE_OK(other->Enqueue("throws", [] { return absl::OkStatus(); }));
  CHECK(absl::IsInternal(other->Synchronize()));
}

TEST_CASE("Host failure: an error in any one operation ends every stream that depends on it",
          "[device][thread]") {
  // The n-th failure loop: n operations in a chain over three streams; wherever it breaks, the end
  // of the chain has the error, and nothing hangs.
  int failures = 0;
  for (int n = 0;; ++n) {
    std::atomic<int> count{0};
    HostDevice::Options options;
    options.hook = [&count, n](const std::string&, const char*) -> absl::Status {
      return count++ == n ? absl::UnavailableError("injected") : absl::OkStatus();
    };
    HostDevice device(options);
    const auto a = NewStream(device, "a");
    const auto b = NewStream(device, "b");
    const auto c = NewStream(device, "c");
    const auto event = NewEvent(device);
    int value = 0;
    const Stream* const chain[] = {a.get(), b.get(), c.get(), a.get()};
    for (int i = 0; i < 4; ++i) {
      if (i > 0) REQUIRE_OK(chain[i]->Wait(*event));
      REQUIRE_OK(chain[i]->Enqueue("add", [&value] {
        ++value;
        return absl::OkStatus();
      }));
      REQUIRE_OK(event->Record(*chain[i]));
    }
    const absl::Status status = event->Synchronize(absl::Seconds(20));
    if (status.ok()) {
      CHECK(value == 4);
      break;
    }
    ++failures;
    CHECK(absl::IsUnavailable(status));
    CHECK(value < 4 + 1);
  }
  CHECK(failures == 11);  // 4 adds, 4 records, 3 waits
}

}  // namespace
}  // namespace zero::test
