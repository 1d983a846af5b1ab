#include "device/buffer.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/device/device_test_util.h"

namespace zero::test {
namespace {

static_assert(!std::is_copy_constructible_v<Buffer> && !std::is_copy_assignable_v<Buffer>);
static_assert(std::is_nothrow_move_constructible_v<Buffer> &&
              std::is_nothrow_move_assignable_v<Buffer>);

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

TEST_CASE("Buffer: bytes are counted by category, current and peak", "[device]") {
  TestDevice device;
  {
    auto weights = device->Allocate(1000, MemoryCategory::kWeights, "weights");
    auto states = device->Allocate(300, MemoryCategory::kOptimizerStates, "states");
    REQUIRE_OK(weights.status());
    REQUIRE_OK(states.status());
    {
      auto more = device->Allocate(24, MemoryCategory::kWeights, "more weights");
      REQUIRE_OK(more.status());
      CHECK(UseOf(*device, MemoryCategory::kWeights).current == 1024);
    }
    CHECK(UseOf(*device, MemoryCategory::kWeights).current == 1000);
    CHECK(UseOf(*device, MemoryCategory::kWeights).peak == 1024);
    CHECK(UseOf(*device, MemoryCategory::kOptimizerStates).current == 300);
    CHECK(UseOf(*device, MemoryCategory::kGradients).peak == 0);
  }
  CHECK(UseOf(*device, MemoryCategory::kWeights).current == 0);
  CHECK(UseOf(*device, MemoryCategory::kWeights).peak == 1024);
  CHECK(device->allocations() == 3);
}

TEST_CASE("Buffer: memory is aligned to 64 bytes, and 0 bytes give an empty one", "[device]") {
  TestDevice device;
  for (int64_t bytes : {1, 3, 64, 65, 1000}) {
    auto buffer = device->Allocate(bytes, MemoryCategory::kOther, "aligned");
    REQUIRE_OK(buffer.status());
    CHECK(reinterpret_cast<uintptr_t>(buffer->data()) % 64 == 0);
    CHECK(buffer->bytes() == bytes);
    CHECK(buffer->owned());
  }
  auto empty = device->Allocate(0, MemoryCategory::kOther, "empty");
  REQUIRE_OK(empty.status());
  CHECK(empty->data() == nullptr);
  CHECK(empty->bytes() == 0);
  auto negative = device->Allocate(-1, MemoryCategory::kOther, "negative");
  CHECK(absl::IsInvalidArgument(negative.status()));
}

TEST_CASE("Buffer: moves carry the memory, and a moved-from one is empty", "[device]") {
  TestDevice device;
  auto allocated = device->Allocate(128, MemoryCategory::kStaging, "moved");
  REQUIRE_OK(allocated.status());
  void* const data = allocated->data();
  Buffer first = *std::move(allocated);
  Buffer second = std::move(first);
  CHECK(second.data() == data);
  CHECK(first.data() == nullptr);  // NOLINT: what a moved-from buffer is, is the question
  CHECK(first.bytes() == 0);
  first = std::move(second);
  CHECK(first.data() == data);
  Buffer& itself = first;
  first = std::move(itself);
  CHECK(first.data() == data);
  CHECK(first.bytes() == 128);
  CHECK(UseOf(*device, MemoryCategory::kStaging).current == 128);
  first = Buffer();
  CHECK(UseOf(*device, MemoryCategory::kStaging).current == 0);
}

TEST_CASE("Buffer: assigning over one frees what it held", "[device]") {
  TestDevice device;
  auto a = device->Allocate(100, MemoryCategory::kReceive, "a");
  auto b = device->Allocate(7, MemoryCategory::kScalars, "b");
  REQUIRE_OK(a.status());
  REQUIRE_OK(b.status());
  *a = *std::move(b);
  CHECK(UseOf(*device, MemoryCategory::kReceive).current == 0);
  CHECK(UseOf(*device, MemoryCategory::kScalars).current == 7);
  CHECK(a->category() == MemoryCategory::kScalars);
}

TEST_CASE("Capacity: a request that does not fit is named, and nothing changes", "[device]") {
  TestDevice device(1000);
  auto held = device->Allocate(600, MemoryCategory::kWeights, "weights of unit 'a'");
  REQUIRE_OK(held.status());
  const auto refused = device->Allocate(401, MemoryCategory::kGradients, "gradients of unit 'b'");
  REQUIRE(absl::IsResourceExhausted(refused.status()));
  const std::string message(refused.status().message());
  CHECK_THAT(message, ContainsSubstring("gradients of unit 'b'"));
  CHECK_THAT(message, ContainsSubstring("401 bytes of gradients"));
  CHECK_THAT(message, ContainsSubstring("capacity 1000"));
  CHECK_THAT(message, ContainsSubstring("in use 600"));
  CHECK_THAT(message, ContainsSubstring("weights 600 (peak 600)"));
  CHECK(UseOf(*device, MemoryCategory::kGradients).peak == 0);
  CHECK(device->allocations() == 1);

  const auto fits = device->Allocate(400, MemoryCategory::kGradients, "smaller");
  CHECK_OK(fits.status());
  CHECK(
      absl::IsResourceExhausted(device->Allocate(1, MemoryCategory::kOther, "one more").status()));
}

TEST_CASE("Capacity: freed bytes can be had again", "[device]") {
  TestDevice device(64);
  for (int i = 0; i < 3; ++i) {
    CHECK_OK(device->Allocate(64, MemoryCategory::kOther, "again").status());
  }
  CHECK(absl::IsResourceExhausted(device->Allocate(65, MemoryCategory::kOther, "x").status()));
}

TEST_CASE("Capacity: huge requests are refused and wrap nowhere", "[device]") {
  for (int64_t capacity : {int64_t{-1}, int64_t{0}, int64_t{1000}, kHuge}) {
    CAPTURE(capacity);
    TestDevice device(capacity);
    absl::StatusOr<Buffer> held;
    if (capacity != 0) {
      held = device->Allocate(100, MemoryCategory::kWeights, "held");
      REQUIRE_OK(held.status());
    }
    for (int64_t bytes : {kHuge, kHuge - 99, kHuge - 100, kHuge - 101, kHuge / 2}) {
      const auto refused = device->Allocate(bytes, MemoryCategory::kWeights, "huge");
      CHECK(absl::IsResourceExhausted(refused.status()));
    }
    // A request that failed leaves no trace: not in the peak either.
    CHECK(UseOf(*device, MemoryCategory::kWeights).peak == (capacity == 0 ? 0 : 100));
    CHECK(device->allocations() == (capacity == 0 ? 0 : 1));
  }
}

TEST_CASE("Capacity: adopted memory is in the table and does not use it up", "[device]") {
  TestDevice device(100);
  std::vector<char> own(500);
  {
    Buffer adopted = device->Adopt(own.data(), 500, MemoryCategory::kActivations);
    CHECK(adopted.data() == own.data());
    CHECK(!adopted.owned());
    CHECK(UseOf(*device, MemoryCategory::kActivations).current == 500);
    CHECK_OK(device->Allocate(100, MemoryCategory::kActivations, "owned").status());
    CHECK(UseOf(*device, MemoryCategory::kActivations).peak == 600);
  }
  CHECK(UseOf(*device, MemoryCategory::kActivations).current == 0);
  CHECK(device->allocations() == 1);
  CHECK(device->Adopt(nullptr, 10, MemoryCategory::kOther).data() == nullptr);
  CHECK(device->Adopt(own.data(), 0, MemoryCategory::kOther).data() == nullptr);
}

TEST_CASE("Capacity: memory of the host is in the table and does not use it up", "[device]") {
  TestDevice device(100);
  {
    auto staging = device->AllocateHost(5000, MemoryCategory::kHostStaging, "staging");
    REQUIRE_OK(staging.status());
    CHECK(staging->owned());
    CHECK(staging->bytes() == 5000);
    CHECK(reinterpret_cast<uintptr_t>(staging->data()) % 64 == 0);
    std::memset(staging->data(), 3, 5000);
    CHECK_OK(device->Allocate(100, MemoryCategory::kOther, "all of it").status());
    CHECK(UseOf(*device, MemoryCategory::kHostStaging).current == 5000);
    Buffer moved = *std::move(staging);
    CHECK(UseOf(*device, MemoryCategory::kHostStaging).current == 5000);
  }
  CHECK(UseOf(*device, MemoryCategory::kHostStaging).current == 0);
  CHECK(UseOf(*device, MemoryCategory::kHostStaging).peak == 5000);
  CHECK(device->allocations() == 2);
  CHECK_OK(device->Allocate(100, MemoryCategory::kOther, "still all of it").status());

  auto empty = device->AllocateHost(0, MemoryCategory::kHostStaging, "empty");
  REQUIRE_OK(empty.status());
  CHECK(empty->data() == nullptr);
  CHECK(absl::IsInvalidArgument(
      device->AllocateHost(-1, MemoryCategory::kHostStaging, "negative").status()));
  const auto huge = device->AllocateHost(kHuge, MemoryCategory::kHostStaging, "huge staging");
  CHECK(absl::IsResourceExhausted(huge.status()));
  CHECK_THAT(std::string(huge.status().message()), ContainsSubstring("huge staging"));
  CHECK_THAT(std::string(huge.status().message()), ContainsSubstring("host_staging 0 (peak 5000)"));
}

TEST_CASE("Capacity: what is offloaded to the host has one of its own and staging has none",
          "[device]") {
  TestDevice device(100);
  device->set_host_capacity(1000);
  CHECK(device->host_capacity() == 1000);
  {
    const auto states = device->AllocateHost(500, MemoryCategory::kHostStates, "states");
    const auto weights = device->AllocateHost(300, MemoryCategory::kHostWeights, "weights");
    const auto slots = device->AllocateHost(200, MemoryCategory::kHostSlots, "slots");
    REQUIRE_OK(states.status());
    REQUIRE_OK(weights.status());
    REQUIRE_OK(slots.status());
    const auto refused = device->AllocateHost(1, MemoryCategory::kHostSlots, "slot 4");
    REQUIRE(absl::IsResourceExhausted(refused.status()));
    const std::string message(refused.status().message());
    for (const char* part :
         {"slot 4: 1 bytes of host_slots do not fit: host capacity 1000, in use 1000: ",
          "host_states 500 (peak 500)", "host_weights 300 (peak 300)"}) {
      CHECK_THAT(message, ContainsSubstring(part));
    }
    CHECK(UseOf(*device, MemoryCategory::kHostSlots).peak == 200);
    CHECK(device->allocations() == 3);
    CHECK_OK(device->AllocateHost(5000, MemoryCategory::kHostStaging, "staging").status());
    CHECK_OK(device->Allocate(100, MemoryCategory::kOther, "of the device").status());
  }
  CHECK_OK(device->AllocateHost(1000, MemoryCategory::kHostStates, "again").status());
  for (const int64_t bytes : {int64_t{1001}, kHuge}) {
    const auto refused = device->AllocateHost(bytes, MemoryCategory::kHostStates, "more");
    CHECK(absl::IsResourceExhausted(refused.status()));
  }
  // What the system refuses is given back.
  device->set_host_capacity(-1);
  CHECK(absl::IsResourceExhausted(
      device->AllocateHost(kHuge, MemoryCategory::kHostStates, "huge").status()));
  device->set_host_capacity(1000);
  CHECK_OK(device->AllocateHost(1000, MemoryCategory::kHostStates, "still").status());
}

TEST_CASE("Memory: every category has a name of its own", "[device]") {
  std::vector<std::string> names;
  for (int i = 0; i < kMemoryCategories; ++i) {
    const std::string name = Name(static_cast<MemoryCategory>(i));
    CHECK(!name.empty());
    for (const std::string& other : names) CHECK(name != other);
    names.push_back(name);
  }
  CHECK(Describe(MemoryTable{}) == "nothing allocated");
}

TEST_CASE("Capacity: threads that allocate at once never pass it together", "[device][thread]") {
  TestDevice device(10 * 64);
  std::vector<std::thread> threads;
  std::vector<int> granted(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<Buffer> held;
      for (int i = 0; i < 10; ++i) {
        auto buffer = device->Allocate(64, MemoryCategory::kOther, "racing");
        if (!buffer.ok()) continue;
        held.push_back(*std::move(buffer));
        ++granted[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(granted[0] + granted[1] + granted[2] + granted[3] >= 10);
  CHECK(UseOf(*device, MemoryCategory::kOther).current == 0);
  CHECK(UseOf(*device, MemoryCategory::kOther).peak <= 640);
}

#if defined(ZERO_POISON) || !defined(NDEBUG)
TEST_CASE("Buffer: fresh memory is poisoned with NaNs in this build", "[device]") {
  TestDevice device;
  const auto stream = NewStream(device, "fresh");
  for (int round = 0; round < 2; ++round) {
    const Buffer buffer = NewBuffer(device, 256);
    const std::vector<uint8_t> bytes = ReadBack(device, *stream, buffer.data(), 256);
    CHECK(bytes == std::vector<uint8_t>(256, 0xFF));
    float value = 0;
    std::memcpy(&value, bytes.data(), sizeof(value));
    CHECK(value != value);
    const Buffer host = NewHostBuffer(device, 64);
    for (int64_t i = 0; i < 64; ++i) REQUIRE(host.as<uint8_t>()[i] == 0xFF);
    std::memset(host.data(), 1, 64);
    REQUIRE_OK(device->Fill(*stream, buffer.data(), 1, 256));
    REQUIRE_OK(stream->Synchronize());
  }
}
#endif

}  // namespace
}  // namespace zero::test
