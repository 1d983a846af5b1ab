#include "io/folder_lock.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/io/watched_files.h"

namespace zero {
namespace {

// A process that holds the lock until it is killed.
pid_t StartHolder(const std::string& folder) {
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = FolderLock::Take(folder);
    const char held = lock.ok() && lock->held() ? 'y' : 'n';
    (void)!write(ready[1], &held, 1);
    while (true) pause();
  }
  char held = 0;
  REQUIRE(read(ready[0], &held, 1) == 1);
  close(ready[0]);
  close(ready[1]);
  REQUIRE(held == 'y');
  return child;
}

TEST_CASE("FolderLock: a folder that another process works in is refused and it is named") {
  TemporaryFolder folder;
  const pid_t child = StartHolder(folder.path());
  const absl::Status refused = FolderLock::Take(folder.path()).status();
  CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(refused.message()),
             ContainsSubstring(
                 absl::StrCat("'", folder.path(), "' is in use by process ", child, " on ")));
  kill(child, SIGKILL);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  // What it has left is in nobody's way.
  CHECK(folder.Names() == std::vector<std::string>{".zero-lock"});
  {
    const auto lock = FolderLock::Take(folder.path());
    REQUIRE_OK(lock.status());
    CHECK(lock->held());
    CHECK_THAT(ReadFile(lock->path()), ContainsSubstring(absl::StrCat("process ", getpid(), " ")));
  }
  CHECK(folder.Names().empty());
}

TEST_CASE("FolderLock: where a file system has no locks nothing is held and nothing is left") {
  TemporaryFolder folder;
  WatchedFiles files;
  files.Fail("lock", 1, ENOLCK);
  const auto lock = FolderLock::Take(folder.path());
  REQUIRE_OK(lock.status());
  CHECK_FALSE(lock->held());
  CHECK(lock->path().empty());
  CHECK(folder.Names().empty());
  // An interrupted call is made again.
  files.Fail("lock", 1, EINTR);
  const auto again = FolderLock::Take(folder.path());
  REQUIRE_OK(again.status());
  CHECK(again->held());
}

TEST_CASE("FolderLock: the lock goes with the object that was moved to") {
  TemporaryFolder folder;
  FolderLock kept;
  {
    auto lock = FolderLock::Take(folder.path());
    REQUIRE_OK(lock.status());
    kept = *std::move(lock);
  }
  CHECK(kept.held());
  CHECK(FolderLock::Take(folder.path()).status().code() == absl::StatusCode::kFailedPrecondition);
  kept = FolderLock();
  CHECK_OK(FolderLock::Take(folder.path()).status());
  CHECK(FolderLock::Take(folder.File("absent")).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("FolderLock: a file has a lock of its own beside that of its folder") {
  TemporaryFolder folder;
  const std::string file = folder.File("m.jsonl");
  {
    const auto whole = FolderLock::Take(folder.path());
    const auto lock = FolderLock::TakeForFile(file);
    REQUIRE_OK(lock.status());
    CHECK(lock->path() == folder.File(".m.jsonl.zero-lock"));
    const absl::Status refused = FolderLock::TakeForFile(file).status();
    CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
    CHECK_THAT(
        std::string(refused.message()),
        ContainsSubstring(absl::StrCat("'", file, "' is in use by process ", getpid(), " ")) &&
            ContainsSubstring("give another file"));
    CHECK_OK(FolderLock::TakeForFile(folder.File("other")).status());
  }
  CHECK(folder.Names().empty());
}

}  // namespace
}  // namespace zero
