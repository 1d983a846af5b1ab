#include "device/handover.h"

#include <atomic>
#include <random>
#include <vector>

#include "tests/device/device_test_util.h"

namespace zero::test {
namespace {

// A region, the streams that use it, and checks that do not lock: only the hand-over protects them.
class Region {
 public:
  explicit Region(int streams, bool delays) : delays_(delays), handover(&*device) {
    for (int i = 0; i < streams; ++i) this->streams.push_back(NewStream(device, "s"));
  }
  absl::Status Write(int stream, int value) {
    return handover.Write(*streams[stream], [&, stream] {
      return Run(*streams[stream], [this, value, delay = Delay()] {
        Pause(delay);
        for (int& element : elements_) element = value;
      });
    });
  }
  absl::Status Read(int stream, int expected) {
    return handover.Read(*streams[stream], [&, stream] {
      return Run(*streams[stream], [this, expected, delay = Delay()] {
        Pause(delay);
        for (const int element : elements_) wrong += element != expected ? 1 : 0;
      });
    });
  }
  void Drain() {
    for (const auto& stream : streams) REQUIRE_OK(stream->Synchronize());
  }

 private:
  // Microseconds; short ones most of the time.
  int Delay() {
    if (!delays_) return 0;
    const int kind = static_cast<int>(random_() % 8);
    return kind == 0 ? static_cast<int>(random_() % 400) : kind < 3 ? 20 : 0;
  }
  static void Pause(int microseconds) {
    if (microseconds > 0) std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  }
  bool delays_;
  std::mt19937 random_{7};
  std::vector<int> elements_ = std::vector<int>(64, 0);

 public:
  TestDevice device;
  Handover handover;
  std::atomic<int> wrong{0};
  std::vector<std::unique_ptr<Stream>> streams;
};

TEST_CASE("Handover: readers see the last write, and a writer waits for all readers",
          "[device][thread]") {
  Region region(3, true);
  for (int round = 1; round <= 60; ++round) {
    REQUIRE_OK(region.Write(round % 3, round));
    REQUIRE_OK(region.Read((round + 1) % 3, round));
    REQUIRE_OK(region.Read((round + 2) % 3, round));
    if (round % 4 == 0) REQUIRE_OK(region.Read(round % 3, round));
  }
  region.Drain();
  CHECK(region.wrong == 0);
}

TEST_CASE("Handover: any sequence of uses over streams is in order", "[device][thread]") {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Region region(4, seed % 2 == 0);
    int value = 0;
    for (int use = 0; use < 150; ++use) {
      const int stream = static_cast<int>(random() % 4);
      if (random() % 3 == 0) {
        REQUIRE_OK(region.Write(stream, ++value));
      } else {
        REQUIRE_OK(region.Read(stream, value));
      }
    }
    region.Drain();
    CHECK(region.wrong == 0);
  }
}

TEST_CASE("Handover: streams may come and go", "[device][thread]") {
  Region region(1, false);
  for (int round = 1; round <= 20; ++round) {
    REQUIRE_OK(region.Write(0, round));
    region.streams.push_back(NewStream(region.device, "guest"));
    REQUIRE_OK(region.Read(1, round));
    region.streams.pop_back();
  }
  region.Drain();
  CHECK(region.wrong == 0);
}

TEST_CASE("Handover: a write that is given up leaves the readers to the next writer",
          "[device][thread]") {
  TestDevice device;
  const auto reader = NewStream(device, "reader");
  const auto gave_up = NewStream(device, "gave up");
  const auto writer = NewStream(device, "writer");
  Handover handover(&*device);
  Door door;
  std::atomic<bool> read{false};
  std::atomic<bool> read_before_write{false};
  REQUIRE_OK(handover.Read(*reader, [&]() -> absl::Status {
    REQUIRE_OK(door.Block(*reader));
    return Run(*reader, [&read] { read = true; });
  }));
  REQUIRE_OK(handover.BeginWrite(*gave_up));
  REQUIRE_OK(handover.Write(
      *writer, [&] { return Run(*writer, [&] { read_before_write = read.load(); }); }));
  Sleep(5);
  door.Open();
  REQUIRE_OK(writer->Synchronize());
  CHECK(read_before_write);
}

TEST_CASE("Handover: the end is recorded although the use failed to enqueue", "[device][thread]") {
  TestDevice device;
  const auto writer = NewStream(device, "writer");
  const auto reader = NewStream(device, "reader");
  Handover handover(&*device);
  Door door;
  std::atomic<bool> wrote{false};
  const absl::Status status = handover.Write(*writer, [&]() -> absl::Status {
    REQUIRE_OK(door.Block(*writer));
    REQUIRE_OK(Run(*writer, [&wrote] { wrote = true; }));
    return absl::AbortedError("the other half");
  });
  CHECK(absl::IsAborted(status));
  bool seen = false;
  REQUIRE_OK(handover.Read(*reader, [&] { return Run(*reader, [&] { seen = wrote; }); }));
  Sleep(5);
  door.Open();
  REQUIRE_OK(reader->Synchronize());
  CHECK(seen);
}

TEST_CASE("Handover: the order moves with it, and what it was moved from is as new",
          "[device][thread]") {
  TestDevice device;
  const auto writer = NewStream(device, "writer");
  const auto reader = NewStream(device, "reader");
  Handover first(&*device);
  Door door;
  int value = 0;
  int seen = 0;
  REQUIRE_OK(first.Write(*writer, [&]() -> absl::Status {
    REQUIRE_OK(door.Block(*writer));
    return Run(*writer, [&value] { value = 5; });
  }));
  Handover second = std::move(first);
  REQUIRE_OK(first.BeginRead(*reader));  // NOLINT: nothing to wait for
  CHECK_OK(reader->Synchronize());
  REQUIRE_OK(second.Read(*reader, [&] { return Run(*reader, [&] { seen = value; }); }));
  door.Open();
  REQUIRE_OK(reader->Synchronize());
  CHECK(seen == 5);
}

}  // namespace
}  // namespace zero::test
