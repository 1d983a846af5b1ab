#include "io/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/io/watched_files.h"

namespace zero {
namespace {

TEST_CASE("PosixFile: a transfer goes on after short counts and interrupts") {
  int calls = 0;
  int64_t next = 0;
  const TransferResult result = TransferAll(10, [&](int64_t done, int64_t left) -> int64_t {
    CHECK(done == next);
    CHECK(left == 10 - done);
    if (++calls % 2 == 1) {
      errno = EINTR;
      return -1;
    }
    const int64_t moved = std::min<int64_t>(left, 3);
    next = done + moved;
    return moved;
  });
  CHECK(result.done == 10);
  CHECK(result.error == 0);
  CHECK(calls == 8);
}

TEST_CASE("PosixFile: a transfer that fails reports how far it came and why") {
  const TransferResult result = TransferAll(10, [&](int64_t done, int64_t) -> int64_t {
    if (done == 0) return 4;
    errno = EIO;
    return -1;
  });
  CHECK(result.done == 4);
  CHECK(result.error == EIO);
}

TEST_CASE("PosixFile: a file that ends early is data loss naming the byte") {
  TemporaryFolder folder;
  const std::string path = folder.File("short");
  WriteFile(path, "abcd");
  auto file = PosixFile::OpenToRead(path);
  REQUIRE_OK(file.status());
  CHECK(file->size() == 4);
  char bytes[6] = {};
  CHECK_OK(file->ReadAt(1, absl::MakeSpan(bytes, 3)));
  CHECK(std::string(bytes, 3) == "bcd");
  const absl::Status status = file->ReadAt(1, absl::MakeSpan(bytes, 6));
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(status.message()),
             ContainsSubstring(path) && ContainsSubstring("the file ends at byte 4"));
}

TEST_CASE("PosixFile: folders, pipes and devices are refused without waiting for them") {
  TemporaryFolder folder;
  const std::string pipe = folder.File("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {folder.path(), pipe, std::string("/dev/zero")}) {
    CAPTURE(path);
    CHECK(PosixFile::OpenToRead(path).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(PosixFile::OpenToRead(folder.File("absent")).status().code() ==
        absl::StatusCode::kNotFound);
}

TEST_CASE("PosixFile: CreateNew refuses a file that exists") {
  TemporaryFolder folder;
  WriteFile(folder.File("old"), "x");
  CHECK(PosixFile::CreateNew(folder.File("old")).status().code() ==
        absl::StatusCode::kAlreadyExists);
  CHECK(ReadFile(folder.File("old")) == "x");
}

TEST_CASE("PosixFile: a full disk is kResourceExhausted with the path and the system's words") {
  const absl::Status status = PosixError("/disk/file", "writing 5 bytes at byte 0", ENOSPC);
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(std::string(status.message()) ==
        "/disk/file: writing 5 bytes at byte 0: No space left on device");

  // The real thing, on the device that is always full.
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) {
    WARN("/dev/full is not there");
    return;
  }
  const TransferResult result = TransferAll(5, [&](int64_t, int64_t left) -> int64_t {
    return pwrite(full, "12345", static_cast<size_t>(left), 0);
  });
  close(full);
  CHECK(result.done == 0);
  CHECK(result.error == ENOSPC);
}

TEST_CASE("PosixFile: OpenToWrite keeps what is there and Resize cuts or adds zeros") {
  TemporaryFolder folder;
  const std::string path = folder.File("f");
  CHECK(PosixFile::OpenToWrite(path).status().code() == absl::StatusCode::kNotFound);
  CHECK(PosixFile::OpenToWrite(folder.path()).status().code() != absl::StatusCode::kOk);
  CHECK(PosixFile::OpenToWrite("/dev/zero").status().code() == absl::StatusCode::kInvalidArgument);
  WriteFile(path, "abcd");
  const auto file = PosixFile::OpenToWrite(path);
  REQUIRE_OK(file.status());
  CHECK(file->size() == 4);
  CHECK_OK(file->WriteAt(1, std::string("X")));
  CHECK(ReadFile(path) == "aXcd");
  CHECK_OK(file->Resize(2));
  CHECK_OK(file->Resize(5));
  CHECK(ReadFile(path) == std::string("aX\0\0\0", 5));
  const absl::Status status = file->Resize(-1);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), ContainsSubstring(path + ": making it -1 bytes long"));
}

TEST_CASE("FileCalls: what is in force is called instead of the system until it is replaced") {
  TemporaryFolder folder;
  const std::string path = folder.File("f");
  {
    WatchedFiles files;
    const auto file = PosixFile::CreateNew(path);
    REQUIRE_OK(file.status());
    files.Fail("write", 2, EIO);
    CHECK_OK(file->WriteAt(0, std::string("1")));
    CHECK(file->WriteAt(1, std::string("2")).code() == absl::StatusCode::kDataLoss);
    CHECK_OK(file->WriteAt(1, std::string("3")));
    files.Fail("fsync", 1, EINTR);  // tried again
    CHECK_OK(file->Sync());
    CHECK(files.Calls() == std::vector<std::string>{"create f", "write f", "write f", "fsync f"});
  }
  CHECK(ReplaceFileCalls(nullptr) == nullptr);
  CHECK(ReadFile(path) == "13");
}

TEST_CASE("PosixFile: the folder of a bare name is the current one") {
  CHECK(FolderOf("file") == ".");
  CHECK(FolderOf("a/b/file") == "a/b");
  CHECK(FolderOf("/file") == "/");
  CHECK_OK(SyncFolder("."));
  CHECK(SyncFolder("/no/such/folder").code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace zero
