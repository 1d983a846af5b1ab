#include "bench/disk_speed.h"

#include "tests/catch.h"
#include "tests/io/faulty_transfers.h"
#include "tests/io/temporary_folder.h"

namespace zero::bench {
namespace {

TEST_CASE("DiskSpeed: it measures every way and removes its file", "[thread]") {
  TemporaryFolder folder;
  const absl::StatusOr<DiskSpeed> speed = MeasureDisk(folder.path(), 10 << 20);
  CHECK(folder.Names().empty());
  if (absl::IsUnimplemented(speed.status())) return;  // no io_uring
  REQUIRE_OK(speed.status());
  CHECK(speed->read > 0);
  CHECK(speed->write > 0);
  CHECK(speed->read_beside_write > 0);
  CHECK(speed->write_beside_read > 0);
  FaultyTransfers files;
  files.refuses_direct = EINVAL;
  const absl::StatusOr<DiskSpeed> cached = MeasureDisk(folder.path(), 2 << 20);
  REQUIRE_OK(cached.status());
  CHECK_THAT(cached->note, ContainsSubstring("through the system's cache"));
}

TEST_CASE("DiskSpeed: sizes that it cannot halve and folders that are not there are refused") {
  TemporaryFolder folder;
  if (absl::IsUnimplemented(MeasureDisk(folder.path(), 2 << 20).status())) return;
  for (const int64_t bytes : {-2 << 20, 0, 1 << 20}) {
    CHECK(MeasureDisk(folder.path(), bytes).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(MeasureDisk(folder.File("no"), 2 << 20).status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace zero::bench
