#include "offload/offload_folder.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "io/disk_file.h"
#include "io/disk_queue.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/io/watched_files.h"
#include "tests/zero/in_process.h"

namespace zero {
namespace {

using test::EndOf;
using test::InProcess;
using test::PendingProcess;
using test::ProcessEnd;
using test::StartProcess;

std::unique_ptr<OffloadFolder> NewFolder(const std::string& path, int rank) {
  absl::StatusOr<std::unique_ptr<OffloadFolder>> folder = OffloadFolder::Create(path, rank);
  REQUIRE_OK(folder.status());
  return *std::move(folder);
}

std::string NameOf(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// Ends its process as `kill -9` does, amid its work.
std::string FillAndDie(const std::string& nvme_path) {
  const auto folder = OffloadFolder::Create(nvme_path, 1);
  if (!folder.ok()) return folder.status().ToString();
  const auto file = DiskFile::Create((*folder)->File("states"), 1 << 20);
  if (!file.ok()) return file.status().ToString();
  const std::string bytes(4096, 'x');
  const absl::Status written = (*DiskQueue::Create())->Write(*file, 0, bytes.data(), 4096);
  if (!written.ok()) return written.ToString();
  kill(getpid(), SIGKILL);
  return "lives";
}

TEST_CASE("OffloadFolder: each rank has one of its own which goes with all that is in it") {
  TemporaryFolder nvme;
  {
    const std::unique_ptr<OffloadFolder> first = NewFolder(nvme.path(), 0);
    const std::unique_ptr<OffloadFolder> second = NewFolder(nvme.path(), 1);
    const std::unique_ptr<OffloadFolder> again = NewFolder(nvme.path(), 0);
    CHECK(nvme.Names().size() == 3);
    CHECK(first->path() != again->path());
    CHECK(first->File("states") == first->path() + "/states");
    CHECK_OK(DiskFile::Create(first->File("states"), 5000).status());
    std::filesystem::create_directories(second->File("a/b"));
    for (const OffloadFolder* folder : {first.get(), second.get(), again.get()}) {
      CHECK(std::filesystem::is_directory(folder->path()));
      CHECK(folder->removed().empty());
      CHECK_THAT(NameOf(folder->path()), ContainsSubstring("." + std::to_string(getpid()) + "."));
    }
  }
  CHECK(nvme.Names().empty());
}

TEST_CASE("OffloadFolder: what a killed process left is removed by the next start") {
  TemporaryFolder nvme;
  for (int i = 0; i < 2; ++i) {
    const ProcessEnd end = InProcess([&] { return FillAndDie(nvme.path()); });
    INFO(end.said);
    REQUIRE(end.killed);
    // The second process has removed what the first one left.
    REQUIRE(nvme.Names().size() == 1);
  }
  const std::string left = nvme.File(nvme.Names()[0]);
  CHECK(std::filesystem::file_size(left + "/states") == 1 << 20);
  const std::unique_ptr<OffloadFolder> folder = NewFolder(nvme.path(), 0);
  CHECK(folder->removed() == std::vector<std::string>{left});
  CHECK(nvme.Names() == std::vector<std::string>{NameOf(folder->path())});
}

TEST_CASE("OffloadFolder: what belongs to a process that lives stays") {
  TemporaryFolder nvme;
  int ready[2];
  int finish[2];
  REQUIRE(pipe(ready) == 0);
  REQUIRE(pipe(finish) == 0);
  const PendingProcess process = StartProcess([&]() -> std::string {
    close(finish[1]);
    const auto folder = OffloadFolder::Create(nvme.path(), 1);
    if (!folder.ok()) return folder.status().ToString();
    const auto file = DiskFile::Create((*folder)->File("states"), 4096);
    char byte = 0;
    (void)!write(ready[1], &byte, 1);
    (void)!read(finish[0], &byte, 1);
    return file.ok() && std::filesystem::exists((*folder)->File("states")) ? "" : "has gone";
  });
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  const std::vector<std::string> others = nvme.Names();
  REQUIRE(others.size() == 1);
  {
    const std::unique_ptr<OffloadFolder> folder = NewFolder(nvme.path(), 0);
    CHECK(folder->removed().empty());
  }
  CHECK(nvme.Names() == others);
  REQUIRE(write(finish[1], &byte, 1) == 1);
  const ProcessEnd end = EndOf(process);
  CHECK(end.said == "");
  CHECK(end.status == 0);
  CHECK(nvme.Names().empty());
  for (const int descriptor : {ready[0], ready[1], finish[0], finish[1]}) close(descriptor);
}

TEST_CASE("OffloadFolder: one that another rank has just made is not told of as left") {
  TemporaryFolder nvme;
  std::string ours;
  { ours = NameOf(NewFolder(nvme.path(), 7)->path()); }
  std::filesystem::create_directory(nvme.File(ours));
  const std::unique_ptr<OffloadFolder> folder = NewFolder(nvme.path(), 0);
  CHECK(folder->removed().empty());
  CHECK(nvme.Names() == std::vector<std::string>{NameOf(folder->path())});
}

TEST_CASE("OffloadFolder: nothing else in nvme_path is touched") {
  TemporaryFolder nvme;
  TemporaryFolder elsewhere;
  WriteFile(elsewhere.File("kept"), "");
  std::string ours;
  { ours = NameOf(NewFolder(nvme.path(), 7)->path()); }
  const std::string digits = ours.substr(ours.rfind('.'));
  const std::string before_digits = ours.substr(0, ours.rfind('.'));
  // Of other hosts, of other kinds, and a link in the place of one.
  std::vector<std::string> kept = {"data",
                                   "zero-offload",
                                   "zero-offload.other.1.0" + digits,
                                   before_digits,
                                   ours + ".old",
                                   "a" + ours,
                                   before_digits + ".xyz",
                                   before_digits + "."};
  for (const std::string& name : kept) std::filesystem::create_directory(nvme.File(name));
  kept.push_back(before_digits + ".00");
  WriteFile(nvme.File(kept.back()), "");
  kept.push_back(before_digits + ".01");
  std::filesystem::create_symlink(elsewhere.path(), nvme.File(kept.back()));
  std::filesystem::create_directory(nvme.File(ours));
  WriteFile(nvme.File(ours) + "/states", "");
  { CHECK(NewFolder(nvme.path(), 0)->removed() == std::vector<std::string>{nvme.File(ours)}); }
  std::vector<std::string> names = nvme.Names();
  std::sort(names.begin(), names.end());
  std::sort(kept.begin(), kept.end());
  CHECK(names == kept);
  CHECK(elsewhere.Names() == std::vector<std::string>{"kept"});
}

TEST_CASE("OffloadFolder: a bad nvme_path is named with the system's words") {
  TemporaryFolder nvme;
  WriteFile(nvme.File("file"), "");
  const auto check = [](const std::string& path, absl::StatusCode code, const char* text) {
    const absl::Status status = OffloadFolder::Create(path, 0).status();
    CHECK(status.code() == code);
    CHECK_THAT(std::string(status.message()),
               ContainsSubstring(path + ": cannot make a folder for offloaded states there: ") &&
                   ContainsSubstring(text));
  };
  check(nvme.File("no"), absl::StatusCode::kNotFound, "No such file or directory");
  check(nvme.File("file"), absl::StatusCode::kFailedPrecondition, "Not a directory");
  WatchedFiles files;
  files.Fail("mkdir", 1, EROFS);
  check(nvme.path(), absl::StatusCode::kPermissionDenied, "Read-only file system");
  files.Fail("mkdir", 1, EACCES);
  check(nvme.path(), absl::StatusCode::kPermissionDenied, "Permission denied");
  files.Fail("mkdir", 1, ENOSPC);
  check(nvme.path(), absl::StatusCode::kResourceExhausted, "No space left on device");
  files.Fail("lock", 1, ENOLCK);
  CHECK_THAT(std::string(OffloadFolder::Create(nvme.path(), 0).status().message()),
             ContainsSubstring(nvme.path()) &&
                 ContainsSubstring("cannot lock the folder: No locks available"));
  CHECK(nvme.Names() == std::vector<std::string>{"file"});
  CHECK_THAT(std::string(OffloadFolder::Create("", 0).status().message()),
             ContainsSubstring("nvme_path is empty"));
}

TEST_CASE("OffloadFolder: a name that is taken or a lock that comes late is tried again") {
  TemporaryFolder nvme;
  WatchedFiles files;
  files.Fail("mkdir", 1, EEXIST);
  CHECK_OK(OffloadFolder::Create(nvme.path(), 0).status());
  files.Fail("lock", 1, EWOULDBLOCK);
  CHECK_OK(OffloadFolder::Create(nvme.path(), 0).status());
}

TEST_CASE("OffloadFolder: ranks that start and end at once do not take each other's", "[thread]") {
  TemporaryFolder nvme;
  std::vector<std::string> wrong(4);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      for (int i = 0; i < 50 && wrong[rank].empty(); ++i) {
        const auto folder = OffloadFolder::Create(nvme.path(), rank);
        if (!folder.ok()) {
          wrong[rank] = folder.status().ToString();
          return;
        }
        WriteFile((*folder)->File("states"), "x");
        std::this_thread::yield();
        if (ReadFile((*folder)->File("states")) != "x") wrong[rank] = "has gone";
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(wrong == std::vector<std::string>(4));
  CHECK(nvme.Names().empty());
}

}  // namespace
}  // namespace zero
