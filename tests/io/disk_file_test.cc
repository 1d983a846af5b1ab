#include "io/disk_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <string>

#include "tests/catch.h"
#include "tests/io/faulty_transfers.h"
#include "tests/io/temporary_folder.h"

namespace zero {
namespace {

int64_t SizeOnDisk(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? info.st_size : -1;
}

int64_t Allocated(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? info.st_blocks * 512 : -1;
}

TEST_CASE("DiskFile: Create sets whole sectors aside for every size") {
  TemporaryFolder folder;
  for (const int64_t bytes : {0, 1, 4095, 4096, 4097, 1000000}) {
    CAPTURE(bytes);
    const std::string path = folder.File(std::to_string(bytes));
    const absl::StatusOr<DiskFile> file = DiskFile::Create(path, bytes);
    REQUIRE_OK(file.status());
    CHECK(file->path() == path);
    CHECK(file->size() == bytes);
    CHECK(SizeOnDisk(path) == (bytes + 4095) / 4096 * 4096);
    CHECK(Allocated(path) >= SizeOnDisk(path));
    CHECK(file->direct() == file->note().empty());
    CHECK(file->offset_alignment() <= kDiskAlignment);
    CHECK(file->memory_alignment() <= kDiskAlignment);
  }
}

TEST_CASE("DiskFile: Create refuses a path that is taken and leaves what is there") {
  TemporaryFolder folder;
  WriteFile(folder.File("taken"), "old");
  const absl::Status status = DiskFile::Create(folder.File("taken"), 4096).status();
  CHECK(status.code() == absl::StatusCode::kAlreadyExists);
  CHECK_THAT(std::string(status.message()), ContainsSubstring(folder.File("taken")));
  CHECK(ReadFile(folder.File("taken")) == "old");
  CHECK(DiskFile::Create(folder.File("no/file"), 1).status().code() == absl::StatusCode::kNotFound);
  CHECK(DiskFile::Create(folder.File("file"), -1).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(folder.Names() == std::vector<std::string>{"taken"});
}

TEST_CASE("DiskFile: Create says bytes wanted and free where a disk is full and leaves no file") {
  TemporaryFolder folder;
  FaultyTransfers files;
  for (const int error : {ENOSPC, EDQUOT}) {
    files.refuses_room = error;
    const absl::Status status = DiskFile::Create(folder.File("file"), 1000000).status();
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    CHECK_THAT(std::string(status.message()),
               ContainsSubstring(folder.File("file") + ": cannot set 1003520 bytes aside where ") &&
                   ContainsSubstring(" are free: ") &&
                   ContainsSubstring(error == ENOSPC ? "No space left" : "quota"));
    CHECK(folder.Names().empty());
  }
}

TEST_CASE("DiskFile: where no room can be set aside that is said and nothing is written") {
  TemporaryFolder folder;
  FaultyTransfers files;
  int writes = 0;
  files.transfer = [&](bool is_write, size_t*, off_t) {
    writes += is_write ? 1 : 0;
    return 0;
  };
  for (const int error : {EOPNOTSUPP, ENOSYS}) {
    files.refuses_room = error;
    const std::string path = folder.File(std::to_string(error));
    const absl::StatusOr<DiskFile> file = DiskFile::Create(path, 1000000);
    REQUIRE_OK(file.status());
    CHECK_THAT(file->note(), ContainsSubstring(path + ": its file system sets no room aside"));
    CHECK(SizeOnDisk(path) == 1003520);
    CHECK(Allocated(path) == 0);
  }
  CHECK(writes == 0);
  const absl::Status status = DiskFile::Create(folder.File("large"), int64_t{1} << 60).status();
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(status.message()), ContainsSubstring(" are free: "));
  CHECK(folder.Names().size() == 2);
}

TEST_CASE("DiskFile: a file larger than its disk is refused at once") {
  TemporaryFolder folder("/dev/shm");
  const absl::Status status = DiskFile::Create(folder.File("file"), int64_t{1} << 50).status();
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(folder.Names().empty());
}

TEST_CASE("DiskFile: where O_DIRECT is refused it goes through the cache and says why") {
  TemporaryFolder folder;
  FaultyTransfers files;
  const auto check = [&](const std::string& name) {
    const absl::StatusOr<DiskFile> file = DiskFile::Create(folder.File(name), 5000);
    REQUIRE_OK(file.status());
    CHECK(!file->direct());
    CHECK(file->offset_alignment() == 1);
    CHECK(file->memory_alignment() == 1);
    CHECK_THAT(file->note(), ContainsSubstring(folder.File(name)) &&
                                 ContainsSubstring("cache: O_DIRECT: Invalid argument"));
  };
  files.refuses_direct = EINVAL;
  check("opening");
  files.refuses_direct = 0;
  const absl::StatusOr<DiskFile> direct = DiskFile::Create(folder.File("direct"), 5000);
  REQUIRE_OK(direct.status());
  if (!direct->direct()) return;  // a file system that has no O_DIRECT
  files.transfer = [](bool, size_t*, off_t) { return EINVAL; };
  check("first transfer");
}

TEST_CASE("DiskFile: a file system in memory is said") {
  TemporaryFolder folder("/dev/shm");
  const absl::StatusOr<DiskFile> file = DiskFile::Create(folder.File("f"), 1);
  REQUIRE_OK(file.status());
  CHECK(!file->direct());
  CHECK_THAT(file->note(), ContainsSubstring(folder.File("f")) && ContainsSubstring("in memory"));
}

TEST_CASE("DiskFile: moving hands the file over and the last owner closes it") {
  TemporaryFolder folder;
  absl::StatusOr<DiskFile> first = DiskFile::Create(folder.File("a"), 5000);
  absl::StatusOr<DiskFile> second = DiskFile::Create(folder.File("b"), 1);
  REQUIRE_OK(first.status());
  REQUIRE_OK(second.status());
  const int descriptor = first->descriptor();
  const bool direct = first->direct();
  {
    DiskFile moved = *std::move(first);
    *second = std::move(moved);
  }
  CHECK(second->descriptor() == descriptor);
  CHECK(second->direct() == direct);
  CHECK(second->path() == folder.File("a"));
  CHECK(second->size() == 5000);
  CHECK(fcntl(descriptor, F_GETFD) >= 0);
  { const DiskFile last = *std::move(second); }
  CHECK(fcntl(descriptor, F_GETFD) == -1);
}

}  // namespace
}  // namespace zero
