// What stands in where liburing is absent, linked in place of what uses it.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "bench/disk_copies.h"
#include "bench/disk_speed.h"
#include "io/disk_queue.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"

namespace zero {
namespace {

TEST_CASE("Without liburing: threads read and write a disk and it is said why") {
  TemporaryFolder folder;
  const auto file = DiskFile::Create(folder.File("f"), 1 << 20);
  REQUIRE_OK(file.status());
  const auto queue = DiskQueue::Create();
  REQUIRE_OK(queue.status());
  CHECK((*queue)->way() == DiskWay::kThreads);
  CHECK((*queue)->note() == "pread and pwrite on 4 threads: this build has no io_uring");
  std::vector<int> written(1 << 18), read(1 << 18);
  std::iota(written.begin(), written.end(), 1);
  CHECK_OK((*queue)->Write(*file, 0, written.data(), 1 << 20));
  CHECK_OK((*queue)->Read(*file, 0, read.data(), 1 << 20));
  CHECK(read == written);
}

TEST_CASE("Without liburing: what measures its requests is kUnimplemented and makes nothing") {
  TemporaryFolder folder;
  CHECK(absl::IsUnimplemented(bench::MeasureDisk(folder.path(), 2 << 20).status()));
  CHECK(folder.Names().empty());
  WriteFile(folder.File("f"), std::string(2 << 20, 'x'));
  CHECK(absl::IsUnimplemented(bench::CopyInPlace(folder.File("f"), 1 << 20, 0).status()));
  CHECK(ReadFile(folder.File("f")) == std::string(2 << 20, 'x'));
}

}  // namespace
}  // namespace zero
