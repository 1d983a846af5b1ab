#include "io/folder_owner.h"

#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>

#include "tests/catch.h"
#include "tests/io/gated_files.h"
#include "tests/io/temporary_folder.h"
#include "tests/io/watched_files.h"

namespace zero {
namespace {

TEST_CASE("FolderOwner: one at a time holds a folder and the next after it") {
  TemporaryFolder folder;
  {
    absl::StatusOr<FolderOwner> first = FolderOwner::TryOwn(folder.path());
    REQUIRE_OK(first.status());
    const absl::Status second = FolderOwner::TryOwn(folder.path()).status();
    CHECK(second.code() == absl::StatusCode::kUnavailable);
    CHECK_THAT(std::string(second.message()), ContainsSubstring(folder.path()));
    const FolderOwner moved = *std::move(first);
    CHECK(FolderOwner::TryOwn(folder.path()).status().code() == absl::StatusCode::kUnavailable);
  }
  CHECK_OK(FolderOwner::TryOwn(folder.path()).status());
}

TEST_CASE("FolderOwner: what is no folder is refused with the system's words") {
  TemporaryFolder folder;
  WriteFile(folder.File("file"), "");
  std::filesystem::create_directory(folder.File("folder"));
  std::filesystem::create_symlink("folder", folder.File("link"));
  CHECK(FolderOwner::TryOwn(folder.File("no")).status().code() == absl::StatusCode::kNotFound);
  for (const char* name : {"file", "link"}) {
    CHECK_THAT(std::string(FolderOwner::TryOwn(folder.File(name)).status().message()),
               ContainsSubstring(folder.File(name)) && ContainsSubstring("Not a directory"));
  }
  WatchedFiles files;
  files.Fail("lock", 1, ENOLCK);
  const absl::Status status = FolderOwner::TryOwn(folder.path()).status();
  CHECK(status.code() == absl::StatusCode::kUnimplemented);
  CHECK_THAT(std::string(status.message()),
             ContainsSubstring(folder.path() + ": cannot lock the folder: No locks available"));
  files.Fail("lock", 1, EINTR);
  CHECK_OK(FolderOwner::TryOwn(folder.path()).status());
}

TEST_CASE("FolderOwner: a folder that goes before it is locked is not locked") {
  TemporaryFolder folder;
  for (const bool again : {false, true}) {
    CAPTURE(again);
    std::filesystem::create_directory(folder.File("f"));
    const GatedFiles files([&](const FileCall& call) {
      if (call.kind == "lock") {
        std::filesystem::remove(folder.File("f"));
        if (again) std::filesystem::create_directory(folder.File("f"));
      }
      return GatedFiles::kGoes;
    });
    CHECK(FolderOwner::TryOwn(folder.File("f")).status().code() == absl::StatusCode::kNotFound);
  }
}

}  // namespace
}  // namespace zero
