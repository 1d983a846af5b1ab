// What the seeded scheduler promises: one order per seed, virtual time, named deadlocks, and
// otherwise what threads do.
#include "device/seeded_scheduler.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/device/device_test_util.h"
#include "tests/device/seeds.h"

namespace zero::test {
namespace {

struct Seeded {
  explicit Seeded(uint64_t seed) : Seeded(SeededScheduler::Options{seed}) {}
  explicit Seeded(const SeededScheduler::Options& options)
      : scheduler(std::make_shared<SeededScheduler>(options)), device(DeviceOptions(scheduler)) {}

  static HostDevice::Options DeviceOptions(const std::shared_ptr<SeededScheduler>& scheduler) {
    HostDevice::Options options;
    options.scheduler = scheduler;
    return options;
  }

  std::shared_ptr<SeededScheduler> scheduler;
  HostDevice device;
};

Operation Never(absl::Duration deadline = absl::InfiniteDuration()) {
  Operation operation;
  operation.name = "never";
  operation.gate = std::make_shared<Gate>();
  operation.ready = [] { return false; };
  operation.deadline = deadline;
  return operation;
}

// Two drivers with two streams each, and events between them; what ran when.
std::vector<std::string> Trace(SeededScheduler::Options options, uint64_t* fingerprint = nullptr) {
  Seeded seeded(options);
  std::vector<std::string> trace;  // one thing at a time: no lock
  std::vector<std::function<void()>> drivers;
  for (int d = 0; d < 2; ++d) {
    drivers.push_back([&, d] {
      const auto a = NewStream(seeded.device, absl::StrCat("a", d));
      const auto b = NewStream(seeded.device, absl::StrCat("b", d));
      const auto event = NewEvent(seeded.device);
      for (int i = 0; i < 10; ++i) {
        const Stream& stream = i % 3 == 0 ? *a : *b;
        REQUIRE_OK(stream.Enqueue("note", [&trace, d, i] {
          trace.push_back(absl::StrCat("runs ", d, "/", i));
          return absl::OkStatus();
        }));
        trace.push_back(absl::StrCat("enqueued ", d, "/", i));
        if (i % 4 != 0) continue;
        REQUIRE_OK(event->Record(stream));
        REQUIRE_OK((i % 3 == 0 ? b : a)->Wait(*event));
      }
      REQUIRE_OK(a->Synchronize());
      REQUIRE_OK(b->Synchronize());
    });
  }
  REQUIRE_OK(seeded.scheduler->RunDrivers(drivers));
  if (fingerprint != nullptr) *fingerprint = seeded.scheduler->fingerprint();
  return trace;
}

constexpr SeededOrder kOrders[] = {SeededOrder::kEven,          SeededOrder::kSticky,
                                   SeededOrder::kPriorities,    SeededOrder::kStarvedStream,
                                   SeededOrder::kStarvedDriver, SeededOrder::kClock};

}  // namespace

TEST_CASE("SeededScheduler: a seed gives the same order each time and most seeds another",
          "[device][thread]") {
  std::set<std::vector<std::string>> orders;
  std::set<uint64_t> fingerprints;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    uint64_t first = 0, second = 0;
    const std::vector<std::string> trace = Trace({seed}, &first);
    REQUIRE(trace == Trace({seed}, &second));
    REQUIRE(first == second);
    REQUIRE(trace.size() == 40);
    orders.insert(trace);
    fingerprints.insert(first);
  }
  CHECK(orders.size() >= 36);
  CHECK(fingerprints.size() >= 36);
}

TEST_CASE("SeededScheduler: seed 1 gives the order that it gives on every machine", "[device]") {
  uint64_t fingerprint = 0;
  Trace({1}, &fingerprint);
  CHECK(fingerprint == 0xDEBEA7C5A2705ABDu);
  CHECK(SeededRandom(0).Next() == 0xE220A8397B1DCDAFu);  // of SplitMix64's author
}

TEST_CASE("SeededScheduler: each way of choosing runs everything and keeps each stream's order",
          "[device]") {
  for (const SeededOrder order : kOrders) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      CAPTURE(static_cast<int>(order), seed);
      std::vector<int> next(4, 0);
      for (const std::string& line : Trace({seed, false, order})) {
        if (line.substr(0, 4) != "runs") continue;
        const int driver = line[5] - '0', i = line[7] - '0';
        int& expected = next[static_cast<size_t>(driver * 2 + (i % 3 == 0 ? 0 : 1))];
        REQUIRE(i >= expected);
        expected = i + 1;
      }
      REQUIRE(next == std::vector<int>{10, 9, 10, 9});
    }
  }
}

TEST_CASE("SeededScheduler: by seed drivers run ahead of their streams or behind them",
          "[device]") {
  int ahead = 0, behind = 0, between = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Seeded seeded(seed);
    const auto stream = NewStream(seeded.device, "s");
    int ran = 0, late = 0;
    for (int i = 0; i < 10; ++i) {
      REQUIRE_OK(stream->Enqueue("count", [&ran] {
        ++ran;
        return absl::OkStatus();
      }));
      late += i + 1 - ran;
    }
    REQUIRE_OK(stream->Synchronize());
    REQUIRE(ran == 10);
    ++(late == 0 ? behind : late == 55 ? ahead : between);
  }
  CHECK(ahead > 5);
  CHECK(behind > 1);
  CHECK(between > 5);
}

TEST_CASE("SeededScheduler: a forgotten event is found by many seeds and one that is there by none",
          "[device]") {
  const uint64_t count = 200;
  for (const bool with_event : {false, true}) {
    int wrong = 0;
    for (uint64_t seed = 0; seed < count; ++seed) {
      Seeded seeded(seed);
      const auto writer = NewStream(seeded.device, "writer");
      const auto reader = NewStream(seeded.device, "reader");
      const auto written = NewEvent(seeded.device);
      int value = 0, read = 0;
      for (int step = 1; step <= 2; ++step) {
        REQUIRE_OK(writer->Enqueue("write", [&value, step] {
          value = step;
          return absl::OkStatus();
        }));
        REQUIRE_OK(written->Record(*writer));
        if (with_event) REQUIRE_OK(reader->Wait(*written));
        REQUIRE_OK(reader->Enqueue("read", [&] {
          read = 10 * read + value;
          return absl::OkStatus();
        }));
        if (with_event) {
          REQUIRE_OK(written->Record(*reader));
          REQUIRE_OK(writer->Wait(*written));
        }
      }
      REQUIRE_OK(reader->Synchronize());
      if (read != 12) ++wrong;
    }
    CAPTURE(with_event, wrong);
    if (with_event) {
      CHECK(wrong == 0);
    } else {
      CHECK(wrong > 40);
    }
  }
}

TEST_CASE("SeededScheduler: deadlines pass in virtual time and earliest first", "[device]") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    Seeded seeded(seed);
    const auto stream = NewStream(seeded.device, "patient");
    const auto other = NewStream(seeded.device, "more patient");
    const auto event = NewEvent(seeded.device);
    std::vector<int> expired;
    for (const int hours : {3, 2}) {
      auto ready = std::make_shared<bool>(false);
      Operation operation = Never(absl::Hours(hours));
      operation.ready = [ready] { return *ready; };
      operation.expire = [ready, hours, &expired] {
        expired.push_back(hours);
        *ready = true;
      };
      REQUIRE_OK((hours == 2 ? stream : other)->Enqueue(std::move(operation)));
    }
    REQUIRE_OK(event->Record(*other));
    // Others went on meanwhile: that is no silence.
    CHECK_OK(event->Synchronize(absl::Hours(2.5)));
    CHECK(expired == std::vector<int>{2, 3});
    CHECK(seeded.scheduler->now_us() >= absl::ToDoubleMicroseconds(absl::Hours(3)));
    CHECK(seeded.scheduler->now_us() < absl::ToDoubleMicroseconds(absl::Hours(4)));

    REQUIRE_OK(stream->Enqueue(Never(absl::Hours(10))));  // nothing happens at this deadline
    REQUIRE_OK(event->Record(*stream));
    const absl::Status silent = event->Synchronize(absl::Hours(1));
    CHECK(absl::IsDeadlineExceeded(silent));
    CHECK_THAT(std::string(silent.message()), ContainsSubstring("1h"));
    CHECK(!event->Reached());
  }
}

TEST_CASE("SeededScheduler: a deadlock ends with the list of who waits for what",
          "[device][thread]") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    Seeded seeded(seed);
    absl::Status seen[3];
    std::atomic<int> skipped{0};
    std::vector<std::function<void()>> drivers;
    // A ring: each driver's stream waits for the other's, and the third waits for one of them.
    std::unique_ptr<Stream> streams[2];
    std::unique_ptr<Event> events[2];
    for (int i = 0; i < 2; ++i) {
      streams[i] = NewStream(seeded.device, absl::StrCat("math-", i));
      events[i] = NewEvent(seeded.device);
    }
    auto gate = std::make_shared<Gate>();
    bool opened = false;
    for (int i = 0; i < 2; ++i) {
      drivers.push_back([&, i] {
        const auto comm = NewStream(seeded.device, absl::StrCat("comm-", i));
        Operation gather;
        gather.name = "gather_weights";
        gather.gate = gate;
        gather.ready = [&opened] { return opened; };
        gather.skip = [&skipped](const absl::Status&) { ++skipped; };
        REQUIRE_OK(comm->Enqueue(std::move(gather)));
        REQUIRE_OK(events[i]->Record(*comm));
        REQUIRE_OK(streams[i]->Wait(*events[i]));
        seen[i] = streams[i]->Synchronize();
      });
    }
    drivers.push_back([&] {
      seen[2] = seeded.scheduler->Await(
          *gate, [&opened] { return opened; }, absl::InfiniteDuration());
    });
    REQUIRE_OK(seeded.scheduler->RunDrivers(drivers));
    for (const absl::Status& status : seen) {
      CHECK(absl::IsInternal(status));
      for (const char* part :
           {"deadlock, nothing can go on: ",
            "stream 'comm-1' of driver 1: operation 'gather_weights' waits",
            "stream 'math-0': operation 'wait' waits for an event of stream 'comm-0'",
            "driver 0 waits for an event of stream 'math-0'",
            "driver 1 waits for an event of stream 'math-1'", "driver 2 waits"}) {
        CHECK_THAT(std::string(status.message()), ContainsSubstring(part));
      }
    }
    CHECK(skipped == 2);
    CHECK(streams[0]->Health() == seen[0]);
  }
}

TEST_CASE("SeededScheduler: a stream that can never run out is destroyed all the same",
          "[device]") {
  Seeded seeded(7);
  int skipped = 0;
  std::string reason;
  {
    const auto stream = NewStream(seeded.device, "stuck");
    for (int i = 0; i < 3; ++i) {
      Operation never = Never();
      never.wait_if_skipped = true;
      never.skip = [&](const absl::Status& why) {
        ++skipped;
        reason = why.ToString();
      };
      REQUIRE_OK(stream->Enqueue(std::move(never)));
    }
  }
  CHECK(skipped == 3);
  CHECK_THAT(reason, ContainsSubstring("the host waits for the end of stream 'stuck'"));
  // Streams that come later are not touched by it.
  const auto stream = NewStream(seeded.device, "later");
  CHECK_OK(stream->Synchronize());
}

TEST_CASE("SeededScheduler: a driver that polls lets the others go on and deadlines pass",
          "[device][thread]") {
  for (const SeededOrder order : kOrders) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      CAPTURE(static_cast<int>(order), seed);
      Seeded seeded({seed, false, order});
      int expired = 0;
      std::vector<std::function<void()>> drivers;
      for (int d = 0; d < 3; ++d) {
        drivers.push_back([&, d] {
          const auto stream = NewStream(seeded.device, "polled");
          const auto event = NewEvent(seeded.device);
          auto ready = std::make_shared<bool>(false);
          Operation late = Never(absl::Milliseconds(1 + d));
          late.ready = [ready] { return *ready; };
          late.expire = [ready, &expired] { ++expired, *ready = true; };
          REQUIRE_OK(stream->Enqueue(std::move(late)));
          REQUIRE_OK(event->Record(*stream));
          while (!event->Reached()) seeded.device.Yield();
        });
      }
      REQUIRE_OK(seeded.scheduler->RunDrivers(drivers));
      CHECK(expired == 3);
      CHECK(seeded.scheduler->now_us() < 10e3);
    }
  }
}

TEST_CASE("SeededScheduler: by the clock streams overlap unless an event orders them", "[device]") {
  for (const bool ordered : {false, true}) {
    Seeded seeded({3, false, SeededOrder::kClock});
    const auto a = NewStream(seeded.device, "a");
    const auto b = NewStream(seeded.device, "b");
    const auto event = NewEvent(seeded.device);
    for (int i = 0; i < 10; ++i) {
      for (const auto& [stream, next] :
           {std::pair(a.get(), b.get()), std::pair(b.get(), a.get())}) {
        Operation work;
        work.name = "work";
        work.cost_us = 5;
        REQUIRE_OK(stream->Enqueue(std::move(work)));
        if (!ordered) continue;
        REQUIRE_OK(event->Record(*stream));
        REQUIRE_OK(next->Wait(*event));
      }
    }
    REQUIRE_OK(a->Synchronize());
    REQUIRE_OK(b->Synchronize());
    CHECK(seeded.scheduler->now_us() == (ordered ? 100 : 50));
  }
}

TEST_CASE("SeededScheduler: with no drivers there is nothing to do", "[device]") {
  SeededScheduler scheduler(1);
  CHECK_OK(scheduler.RunDrivers({}));
  CHECK(scheduler.progress() == 0);
}

TEST_CASE("SeededScheduler: a driver that throws ends, and the others go on", "[device][thread]") {
  Seeded seeded(5);
  int ended = 0;
  const auto lives = [&] {
    const auto stream = NewStream(seeded.device, "lives");
    REQUIRE_OK(stream->Synchronize());
    ++ended;
  };
  const absl::Status status =
      seeded.scheduler->RunDrivers({lives, [] { throw std::runtime_error("planted"); }, lives});
  CHECK(absl::IsInternal(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("'driver 1' threw: planted"));
  CHECK(ended == 2);
}

TEST_CASE("SeededScheduler: an operation that waits inside is refused", "[device]") {
  Seeded seeded(5);
  const auto stream = NewStream(seeded.device, "waits");
  const auto other = NewStream(seeded.device, "other");
  const auto event = NewEvent(seeded.device);
  REQUIRE_OK(other->Enqueue(Never(absl::Seconds(1))));
  REQUIRE_OK(event->Record(*other));
  REQUIRE_OK(
      stream->Enqueue("waits", [&event] { return event->Synchronize(absl::InfiniteDuration()); }));
  CHECK(absl::IsFailedPrecondition(stream->Synchronize()));
}

namespace {

// Random programs on three streams: failures, refusals, deadlines, events, waits that are kept
// when skipped. The log of each stream, and what became of it.
std::vector<std::string> RunProgram(uint64_t program, std::shared_ptr<Scheduler> scheduler) {
  SeededRandom random(program);
  HostDevice::Options options;
  options.scheduler = std::move(scheduler);
  options.hook = [](const std::string&, const char* operation) {
    return std::string(operation) == "refused" ? absl::UnavailableError("refused")
                                               : absl::OkStatus();
  };
  HostDevice device(options);
  std::vector<std::string> logs(4);
  {
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<Event>> events;
    for (int i = 0; i < 3; ++i) {
      streams.push_back(NewStream(device, absl::StrCat("s", i)));
      events.push_back(NewEvent(device));
    }
    for (int i = 0; i < 25; ++i) {
      const uint32_t s = random.Below(3);
      const Stream& stream = *streams[s];
      const uint32_t what = random.Below(24);
      const uint32_t e = random.Below(3);
      std::string& log = logs[s];
      if (what < 8) {
        REQUIRE_OK(events[e]->Record(stream));
      } else if (what < 14) {
        const absl::Status waits = stream.Wait(*events[e]);
        if (!waits.ok()) logs[3] += absl::StrCat(waits.message(), "\n");
      } else {
        Operation operation;
        operation.name = what == 14 ? "refused" : "runs";
        operation.run = [&log, i, what]() -> absl::Status {
          absl::StrAppend(&log, i, " ran\n");
          if (what == 15) return absl::DataLossError(absl::StrCat("failed at ", i));
          if (what == 16) throw std::runtime_error("odd");
          return absl::OkStatus();
        };
        operation.skip = [&log, i](const absl::Status& why) {
          absl::StrAppend(&log, i, " skipped: ", why.message(), "\n");
        };
        if (what >= 22) {  // expires, and is ready then
          operation.gate = std::make_shared<Gate>();
          auto ready = std::make_shared<bool>(false);
          operation.ready = [ready] { return *ready; };
          operation.wait_if_skipped = what == 23;
          operation.deadline = absl::Microseconds(10);
          operation.expire = [&log, ready, i, gate = operation.gate] {
            absl::StrAppend(&log, i, " expired\n");
            std::lock_guard<std::mutex> lock(gate->mutex);
            *ready = true;
          };
        }
        REQUIRE_OK(stream.Enqueue(std::move(operation)));
      }
    }
    for (int i = 0; i < 3; ++i) {
      absl::StrAppend(&logs[3], streams[i]->Synchronize().ToString(), "\n");
      absl::StrAppend(&logs[3], streams[i]->Health().ToString(), "\n");
    }
  }
  return logs;
}

}  // namespace

TEST_CASE("SeededScheduler: random programs run and fail and skip as they do on threads",
          "[device][thread]") {
  int failing = 0;
  for (const uint64_t seed : Seeds(1, 300)) {
    CAPTURE_SEED(seed);
    const std::vector<std::string> threads = RunProgram(seed, std::make_shared<ThreadScheduler>());
    REQUIRE(RunProgram(seed, std::make_shared<SeededScheduler>(seed)) == threads);
    failing += threads[3].find("DATA_LOSS") != std::string::npos ? 1 : 0;
  }
  CHECK(failing > 0);
}

}  // namespace zero::test
