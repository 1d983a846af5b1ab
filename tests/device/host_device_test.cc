#include "device/host_device.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/device/device_test_util.h"

namespace zero::test {
namespace {

TEST_CASE("HostDevice: copies and fills of any size are exact, with and without a pool",
          "[device][thread]") {
  ThreadPool pool(3);
  for (const bool pooled : {false, true}) {
    HostDevice::Options options;
    options.pool = pooled ? &pool : nullptr;
    HostDevice device(options);
    const auto stream = NewStream(device, "copies");
    CHECK(HostPool(*stream) == options.pool);
    for (const int64_t bytes : {0, 1, 63, 4097, (3 << 20) + 5}) {
      CAPTURE(pooled, bytes);
      std::vector<uint8_t> from(static_cast<size_t>(bytes));
      std::iota(from.begin(), from.end(), uint8_t{1});
      std::vector<uint8_t> to(static_cast<size_t>(bytes) + 1, 7);
      CHECK_OK(device.Copy(*stream, to.data(), from.data(), bytes));
      CHECK_OK(stream->Synchronize());
      CHECK(std::equal(from.begin(), from.end(), to.begin()));
      CHECK(to.back() == 7);
      CHECK_OK(device.Fill(*stream, to.data(), 0xAB, bytes));
      CHECK_OK(stream->Synchronize());
      CHECK(std::count(to.begin(), to.end(), 0xAB) == bytes);
      CHECK(to.back() == 7);
    }
    CHECK(absl::IsInvalidArgument(device.Copy(*stream, nullptr, nullptr, -1)));
    CHECK(absl::IsInvalidArgument(device.Fill(*stream, nullptr, 0, -8)));
  }
}

}  // namespace
}  // namespace zero::test
