#include "kernels/zero_ranges.h"

#include <algorithm>

#include "tests/kernels/kernel_test_util.h"

namespace zero {
namespace {

// Zeroes ranges of `bytes` in the stream and on the host, and compares all bytes.
void CheckZeroed(KernelRun& run, int64_t size,
                 const std::vector<std::pair<int64_t, int64_t>>& ranges) {
  std::vector<unsigned char> bytes(static_cast<size_t>(size), 0xA5);
  std::vector<unsigned char> expected = bytes;
  std::vector<ByteRange> on_device;
  for (const auto& [begin, count] : ranges) {
    on_device.push_back({run.On(bytes) + begin, count});
    std::fill_n(expected.begin() + begin, count, static_cast<unsigned char>(0));
  }
  REQUIRE_OK(ZeroRanges(run.stream(), on_device));
  run.Finish();
  CHECK(bytes == expected);
}

TEST_CASE("ZeroRanges: zeroes each byte of a range and none beside it", "[kernels]") {
  KernelRun run;
  ForEachVariant([&](const std::string& variant) {
    for (int64_t begin : {0, 1, 15, 16, 17}) {
      for (int64_t count : {0, 1, 2, 15, 16, 17, 31, 32, 33, 4095, 4096, 4097, 40000}) {
        INFO(variant << " from " << begin << " bytes " << count);
        CheckZeroed(run, begin + count + 40, {{begin, count}});
      }
    }
  });
}

TEST_CASE("ZeroRanges: any number of ranges of different lengths is zeroed", "[kernels]") {
  KernelRun run;
  for (int64_t count : {2, 127, 128, 129, 300}) {
    std::vector<std::pair<int64_t, int64_t>> ranges;
    int64_t at = 3;
    for (int64_t i = 0; i < count; ++i) {
      ranges.push_back({at, i * 37 % 100});
      at += ranges.back().second + 1 + i % 3;
    }
    INFO(count << " ranges");
    CheckZeroed(run, at, ranges);
  }
}

TEST_CASE("ZeroRanges: no ranges enqueue nothing", "[kernels]") {
  KernelRun run;
  CHECK_OK(ZeroRanges(run.stream(), {}));
  run.Finish();
  CHECK(run.kernels() == 0);
}

}  // namespace
}  // namespace zero
