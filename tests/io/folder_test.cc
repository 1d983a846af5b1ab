#include "io/folder.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <thread>

#include "tests/catch.h"
#include "tests/io/temporary_folder.h"
#include "tests/io/watched_files.h"

namespace zero {
namespace {

using Calls = std::vector<std::string>;

TEST_CASE("Folder: MakeFolders makes what is missing and syncs the folder above each") {
  TemporaryFolder folder;
  const std::string top = std::filesystem::path(folder.path()).filename().string();
  WatchedFiles files;
  CHECK_OK(MakeFolders(folder.File("a/b/./c/")));
  CHECK(std::filesystem::is_directory(folder.File("a/b/c")));
  CHECK(files.Calls() ==
        Calls{"mkdir a", "fsync " + top, "mkdir b", "fsync a", "mkdir c", "fsync b"});
  CHECK_OK(MakeFolders(folder.File("a/b")));
  CHECK(files.Calls().empty());
}

TEST_CASE("Folder: MakeFolders of several at once makes each folder for all", "[thread]") {
  TemporaryFolder folder;
  std::vector<absl::Status> results(8);
  std::vector<std::thread> threads;
  for (absl::Status& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20 && result.ok(); ++i) {
        result = MakeFolders(folder.File(std::to_string(i) + "/a/b/c"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) CHECK_OK(result);
}

TEST_CASE("Folder: MakeFolders names the file that is in the way") {
  TemporaryFolder folder;
  WriteFile(folder.File("file"), "x");
  std::filesystem::create_symlink("nowhere", folder.File("link"));
  for (const char* path : {"file", "file/a/b"}) {
    const absl::Status status = MakeFolders(folder.File(path));
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK_THAT(std::string(status.message()),
               ContainsSubstring(folder.File(path) + ": cannot be made: " + folder.File("file")));
  }
  CHECK(MakeFolders(folder.File("link/a")).code() == absl::StatusCode::kAlreadyExists);
  WatchedFiles files;
  files.Fail("mkdir", 2, ENOSPC);
  const absl::Status status = MakeFolders(folder.File("a/b/c"));
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(status.message()), ContainsSubstring(folder.File("a/b") + ": cannot"));
}

TEST_CASE("Folder: ListFolder gives sorted names, hidden ones too") {
  TemporaryFolder folder;
  CHECK(ListFolder(folder.path())->empty());
  for (const char* name : {"b", ".a", "c"}) WriteFile(folder.File(name), "");
  CHECK(*ListFolder(folder.path()) == Calls{".a", "b", "c"});
  const absl::Status status = ListFolder(folder.File("no")).status();
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(status.message()),
             ContainsSubstring(folder.File("no")) && ContainsSubstring("No such file"));
}

TEST_CASE("Folder: RemoveTree removes everything below and follows no link") {
  TemporaryFolder folder;
  TemporaryFolder other;
  WriteFile(other.File("kept"), "x");
  std::filesystem::create_directories(folder.File("t/a/b"));
  WriteFile(folder.File("t/a/f"), "x");
  WriteFile(folder.File("t/.hidden"), "x");
  std::filesystem::create_symlink(other.path(), folder.File("t/a/b/link"));
  CHECK_OK(RemoveTree(folder.File("t")));
  CHECK(folder.Names().empty());
  CHECK(other.Names() == Calls{"kept"});
  CHECK_OK(RemoveTree(folder.File("t")));

  WriteFile(folder.File("f"), "x");
  WatchedFiles files;
  files.Fail("unlink", 1, EIO);
  const absl::Status status = RemoveTree(folder.File("f"));
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(status.message()), ContainsSubstring(folder.File("f")));
  files.Fail("unlink", 1, ENOENT);  // another one was faster
  CHECK_OK(RemoveTree(folder.File("f")));
}

TEST_CASE("Folder: Rename syncs the folders of both names and changes nothing when it fails") {
  TemporaryFolder folder;
  std::filesystem::create_directories(folder.File("from"));
  std::filesystem::create_directories(folder.File("to"));
  WriteFile(folder.File("from/a"), "x");
  WatchedFiles files;
  CHECK_OK(Rename(folder.File("from/a"), folder.File("from/b")));
  CHECK(files.Calls() == Calls{"rename b", "fsync from"});
  CHECK_OK(Rename(folder.File("from/b"), folder.File("to/c")));
  CHECK(files.Calls() == Calls{"rename c", "fsync to", "fsync from"});
  CHECK(ReadFile(folder.File("to/c")) == "x");

  files.Fail("rename", 1, EXDEV);
  const absl::Status status = Rename(folder.File("to/c"), folder.File("d"));
  CHECK_THAT(std::string(status.message()),
             ContainsSubstring(folder.File("to/c") + ": cannot rename it to " + folder.File("d")));
  CHECK(ReadFile(folder.File("to/c")) == "x");
}

TEST_CASE("Folder: WriteWhole syncs the content before the name and the folder after it") {
  TemporaryFolder folder;
  const std::string top = std::filesystem::path(folder.path()).filename().string();
  WatchedFiles files;
  CHECK_OK(WriteWhole(folder.File("f"), "new"));
  CHECK(files.Calls() == Calls{"create *", "write *", "fsync *", "rename f", "fsync " + top});
  CHECK(ReadFile(folder.File("f")) == "new");
}

TEST_CASE(
    "Folder: whatever call of WriteWhole and CopyWhole fails leaves the old file or the new") {
  TemporaryFolder folder;
  const std::string path = folder.File("f");
  WriteFile(folder.File("source"), "new");
  for (const bool copies : {false, true}) {
    for (const char* kind : {"create", "write", "fsync", "rename"}) {
      CAPTURE(copies, kind);
      WriteFile(path, "old");
      WatchedFiles files;
      files.Fail(kind, 1, ENOSPC);
      const absl::Status status =
          copies ? CopyWhole(folder.File("source"), path) : WriteWhole(path, "new");
      CHECK(status.code() == absl::StatusCode::kResourceExhausted);
      CHECK_THAT(std::string(status.message()),
                 ContainsSubstring(folder.path()) && ContainsSubstring("No space left"));
      CHECK(ReadFile(path) == "old");
      CHECK(folder.Names().size() == 2);
    }
    WatchedFiles files;
    files.Fail("fsync", 2, EIO);  // of the folder, after the rename
    CHECK(WriteWhole(path, "new").code() == absl::StatusCode::kDataLoss);
    CHECK(ReadFile(path) == "new");
    CHECK(folder.Names().size() == 2);
  }
}

TEST_CASE("Folder: CopyWhole copies every byte of files longer than its buffer") {
  TemporaryFolder folder;
  std::string bytes((2 << 20) + 3, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i % 251 + 1);
  for (const std::string& content : {bytes, std::string()}) {
    WriteFile(folder.File("from"), content);
    CHECK_OK(CopyWhole(folder.File("from"), folder.File("to")));
    CHECK((ReadFile(folder.File("to")) == content));
  }
  CHECK(CopyWhole(folder.File("no"), folder.File("to")).code() == absl::StatusCode::kNotFound);
  CHECK(CopyWhole(folder.path(), folder.File("to")).code() == absl::StatusCode::kInvalidArgument);
  std::filesystem::create_directory(folder.File("d"));
  CHECK(CopyWhole(folder.File("from"), folder.File("d")).code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Folder: ReadWhole reads up to its limit and refuses more with both numbers") {
  TemporaryFolder folder;
  WriteFile(folder.File("f"), std::string("a\0b", 3));
  CHECK(*ReadWhole(folder.File("f"), 3) == std::string("a\0b", 3));
  const absl::Status status = ReadWhole(folder.File("f"), 2).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()),
             ContainsSubstring(folder.File("f") + ": has 3 bytes; at most 2 are read"));
}

}  // namespace
}  // namespace zero
