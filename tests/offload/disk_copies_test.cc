#include "bench/disk_copies.h"

#include "bench/plain_files.h"
#include "io/folder.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"

namespace zero::bench {
namespace {

TEST_CASE("DiskCopies: what is copied in place stays what it was") {
  TemporaryFolder folder;
  const std::string path = folder.File("state");
  REQUIRE_OK(WritePlain(path, (5 << 20) + 12345));
  const absl::StatusOr<std::string> before = ReadWhole(path, 1 << 30);
  REQUIRE_OK(before.status());
  // More than the file has: it begins again.
  const absl::StatusOr<double> speed = CopyInPlace(path, 300 << 20, 200 << 20);
  if (absl::IsUnimplemented(speed.status())) return;  // no io_uring
  REQUIRE_OK(speed.status());
  CHECK(*speed > 0);
  const absl::StatusOr<std::string> after = ReadWhole(path, 1 << 30);
  REQUIRE_OK(after.status());
  CHECK(*before == *after);
}

TEST_CASE("DiskCopies: files that are too small or not there are refused") {
  TemporaryFolder folder;
  const std::string path = folder.File("state");
  REQUIRE_OK(WritePlain(path, (1 << 20) - 1));
  const absl::Status small = CopyInPlace(path, 1 << 20, 1 << 20).status();
  if (absl::IsUnimplemented(small)) return;
  CHECK(absl::IsInvalidArgument(small));
  CHECK_THAT(std::string(small.message()),
             ContainsSubstring("has 1048575 bytes; it must have 1048576"));
  CHECK(absl::IsNotFound(CopyInPlace(folder.File("no"), 1 << 20, 0).status()));
}

}  // namespace
}  // namespace zero::bench
