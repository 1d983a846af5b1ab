// Finding, completing and removing checkpoints.
#include "zero/save/checkpoint_folder.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "io/folder.h"
#include "tests/catch.h"
#include "tests/io/gated_files.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/checkpoint_fixture.h"
#include "tests/zero/end_after.h"
#include "zero/save/checkpoint_reader.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHex = "0123456789abcdef";

std::string TemporaryName(int64_t step) {
  return absl::StrCat(".", CheckpointName(step), ".", kHex, ".tmp");
}

void Make(const std::string& path, int64_t step) {
  CheckpointManifest manifest = SmallCheckpoint(DType::kBF16);
  manifest.step = step;
  CutIntoFiles(manifest, 2);
  REQUIRE_OK(WriteCheckpoint(path, manifest));
}

std::vector<std::string> SortedNames(const TemporaryFolder& folder) {
  std::vector<std::string> names = folder.Names();
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> Found(const std::string& folder) {
  const auto found = FindCheckpoints(folder);
  REQUIRE_OK(found.status());
  std::vector<std::string> names;
  for (const FoundCheckpoint& checkpoint : *found) {
    names.push_back(
        absl::StrCat(fs::path(checkpoint.path).filename().string(), "=", checkpoint.step));
  }
  return names;
}

using Names = std::vector<std::string>;

TEST_CASE("Checkpoint folder: names have eight digits or more", "[save]") {
  CHECK(CheckpointName(0) == "step-00000000");
  CHECK(CheckpointName(100) == "step-00000100");
  CHECK(CheckpointName(1234567890123) == "step-1234567890123");
}

TEST_CASE("Checkpoint folder: complete ones are found whatever they are called", "[save]") {
  const TemporaryFolder folder;
  CHECK(Found(folder.path()).empty());
  Make(folder.File(CheckpointName(20)), 20);
  Make(folder.File(CheckpointName(100000000)), 100000000);
  Make(folder.File("best"), 7);
  Make(folder.File(TemporaryName(20)), 20);
  Make(folder.File(TemporaryName(30)), 30);
  Make(folder.File(".step-00000040.removed"), 40);
  Make(folder.File(CheckpointName(50)), 50);
  fs::remove(folder.File(CheckpointName(50)) + "/manifest.json");
  Make(folder.File(CheckpointName(60)), 60);
  fs::resize_file(folder.File(CheckpointName(60)) + "/rank-00001-of-00002.safetensors", 100);
  fs::create_directory(folder.File("logs"));
  WriteFile(folder.File("step-00000070"), "a file");
  CHECK(Found(folder.path()) == Names{"best=7", "step-00000020=20", TemporaryName(20) + "=20",
                                      TemporaryName(30) + "=30", "step-100000000=100000000"});
  const auto latest = LatestCheckpoint(folder.path());
  REQUIRE_OK(latest.status());
  CHECK(latest->path == folder.File("step-100000000"));
  CHECK(latest->step == 100000000);
  CHECK(absl::IsNotFound(FindCheckpoints(folder.File("nothing")).status()));
}

TEST_CASE("Checkpoint folder: one that has the name of another step counts for neither", "[save]") {
  const TemporaryFolder folder;
  Make(folder.File(CheckpointName(20)), 20);
  Make(folder.File(CheckpointName(90)), 10);
  Make(folder.File("step-5-good"), 5);
  Make(folder.File("step-7"), 7);
  CHECK(Found(folder.path()) == Names{"step-5-good=5", "step-7=7", "step-00000020=20"});
  const auto latest = LatestCheckpoint(folder.path());
  REQUIRE_OK(latest.status());
  CHECK(latest->step == 20);
  REQUIRE(latest->passed_over.size() == 1);
  CHECK(latest->passed_over[0] == folder.File(CheckpointName(90)) +
                                      ": is called after step 90, but its manifest.json is of step "
                                      "10, which is called step-00000010");
  REQUIRE_OK(PruneCheckpoints(folder.path(), INT64_MAX, 1, 0).status());
  CHECK(fs::exists(folder.File(CheckpointName(90))));
  CHECK(CheckCheckpointName(folder.File(CheckpointName(90)) + "/", 10).code() ==
        absl::StatusCode::kDataLoss);
  CHECK_OK(CheckCheckpointName(folder.File(CheckpointName(90)) + "/", 90));
}

TEST_CASE("Checkpoint folder: where none is complete what there is is named", "[save]") {
  const TemporaryFolder folder;
  auto latest = LatestCheckpoint(folder.path());
  CHECK(absl::IsNotFound(latest.status()));
  CHECK_THAT(std::string(latest.status().message()),
             ContainsSubstring(folder.path() + ": holds no complete checkpoint"));
  fs::create_directory(folder.File("logs"));
  for (const int64_t step : {1, 2, 3, 4, 5, 6, 7}) {
    fs::create_directory(folder.File(CheckpointName(step)));
  }
  Make(folder.File(CheckpointName(2)), 2);
  fs::remove(folder.File(CheckpointName(2)) + "/rank-00000-of-00002.safetensors");
  latest = LatestCheckpoint(folder.path());
  CHECK(absl::IsNotFound(latest.status()));
  const std::string message(latest.status().message());
  CHECK_THAT(message, ContainsSubstring("step-00000001/manifest.json: cannot open"));
  CHECK_THAT(message,
             ContainsSubstring("step-00000002/rank-00000-of-00002.safetensors: is missing"));
  CHECK_THAT(message, ContainsSubstring("and 2 more"));
  CHECK_THAT(message, !ContainsSubstring("logs"));

  const TemporaryFolder other;
  Make(other.File("inner"), 9);
  CHECK_THAT(std::string(LatestCheckpoint(other.File("inner")).status().message()),
             ContainsSubstring("it is one itself"));
}

TEST_CASE("Checkpoint folder: cleaning completes what is complete and removes the rest", "[save]") {
  const TemporaryFolder folder;
  CHECK_OK(CleanCheckpoints(folder.File("nothing")));
  Make(folder.File(CheckpointName(10)), 10);
  Make(folder.File(TemporaryName(20)), 20);
  Make(folder.File(TemporaryName(30)), 30);
  fs::remove(folder.File(TemporaryName(30)) + "/manifest.json");
  Make(folder.File(".step-00000040.removed"), 40);
  Make(folder.File(CheckpointName(50)), 50);
  fs::remove(folder.File(CheckpointName(50)) + "/manifest.json");
  fs::create_directory(folder.File(".other.tmp"));
  WriteFile(folder.File("notes.txt"), "kept");
  CHECK_OK(CleanCheckpoints(folder.path()));
  CHECK(SortedNames(folder) ==
        Names{".other.tmp", "notes.txt", "step-00000010", "step-00000020", "step-00000050"});
  CHECK(Found(folder.path()) == Names{"step-00000010=10", "step-00000020=20"});
}

TEST_CASE("Checkpoint folder: one that was saved again takes the place of the old one", "[save]") {
  const TemporaryFolder folder;
  Make(folder.File(CheckpointName(10)), 10);
  CheckpointManifest manifest = SmallCheckpoint(DType::kBF16);
  manifest.step = 10;
  manifest.attributes = {{"saved", "again"}};
  CutIntoFiles(manifest, 3);
  REQUIRE_OK(WriteCheckpoint(folder.File(TemporaryName(10)), manifest));
  CHECK(LatestCheckpoint(folder.path())->path == folder.File(TemporaryName(10)));
  CHECK_OK(CleanCheckpoints(folder.path()));
  CHECK(SortedNames(folder) == Names{"step-00000010"});
  const auto read = ReadManifest(folder.File(CheckpointName(10)));
  REQUIRE_OK(read.status());
  CHECK(read->attributes == manifest.attributes);
}

TEST_CASE("Checkpoint folder: a temporary one of a newer format is left alone", "[save]") {
  const TemporaryFolder folder;
  fs::create_directory(folder.File(TemporaryName(5)));
  WriteFile(folder.File(TemporaryName(5)) + "/manifest.json", "{\"format\": 2}");
  CHECK_OK(CleanCheckpoints(folder.path()));
  CHECK(SortedNames(folder) == Names{TemporaryName(5)});
}

TEST_CASE("Checkpoint folder: the last ones and each of so many steps are kept", "[save]") {
  const TemporaryFolder folder;
  const auto fill = [&] {
    for (const int64_t step : {10, 20, 30, 40, 50}) Make(folder.File(CheckpointName(step)), step);
  };
  fill();
  Make(folder.File("best"), 5);
  Make(folder.File(CheckpointName(60)), 60);
  fs::remove(folder.File(CheckpointName(60)) + "/manifest.json");
  const auto prune = [&](int64_t last, int64_t every) {
    const auto removed = PruneCheckpoints(folder.path(), INT64_MAX, last, every);
    REQUIRE_OK(removed.status());
    return *removed;
  };
  CHECK(prune(0, 0).empty());
  CHECK(prune(5, 0).empty());
  CHECK(prune(100, 20).empty());
  CHECK(prune(1, 20) == Names{folder.File("step-00000010"), folder.File("step-00000030")});
  // What is not complete and what is called otherwise stays.
  CHECK(SortedNames(folder) ==
        Names{"best", "step-00000020", "step-00000040", "step-00000050", "step-00000060"});
  CHECK(prune(2, 0) == Names{folder.File("step-00000020")});
  CHECK(prune(1, 0) == Names{folder.File("step-00000040")});
  CHECK(prune(1, 0).empty());
  CHECK(Found(folder.path()) == Names{"best=5", "step-00000050=50"});
  CHECK(absl::IsInvalidArgument(PruneCheckpoints(folder.path(), INT64_MAX, -1, 0).status()));
  CHECK(absl::IsInvalidArgument(PruneCheckpoints(folder.path(), INT64_MAX, 1, -1).status()));
}

TEST_CASE("Checkpoint folder: later steps are neither removed nor counted", "[save]") {
  const TemporaryFolder folder;
  for (const int64_t step : {10, 20, 30, 40}) Make(folder.File(CheckpointName(step)), step);
  const auto removed = PruneCheckpoints(folder.path(), /*newest=*/20, 1, 0);
  REQUIRE_OK(removed.status());
  CHECK(*removed == Names{folder.File("step-00000010")});
  CHECK(SortedNames(folder) == Names{"step-00000020", "step-00000030", "step-00000040"});
}

TEST_CASE("Checkpoint folder: later ones that are not complete are told", "[save]") {
  const TemporaryFolder folder;
  for (const int64_t step : {10, 20, 30}) Make(folder.File(CheckpointName(step)), step);
  fs::remove(folder.File(CheckpointName(10)) + "/manifest.json");
  fs::remove(folder.File(CheckpointName(30)) + "/rank-00000-of-00002.safetensors");
  auto latest = LatestCheckpoint(folder.path());
  REQUIRE_OK(latest.status());
  CHECK(latest->step == 20);
  REQUIRE(latest->passed_over.size() == 1);
  CHECK_THAT(latest->passed_over[0],
             ContainsSubstring("step-00000030/rank-00000-of-00002.safetensors: is missing"));
  // What may be read elsewhere, or another time, is not passed over.
  WriteFile(folder.File(CheckpointName(30)) + "/manifest.json", "{\"format\": 2}");
  CHECK(absl::IsUnimplemented(LatestCheckpoint(folder.path()).status()));
}

TEST_CASE("Checkpoint folder: cleaning removes nothing that a disk does not give for once",
          "[save]") {
  for (const char* file : {"manifest.json", "rank-00000-of-00002.safetensors"}) {
    const TemporaryFolder folder;
    Make(folder.File(TemporaryName(20)), 20);
    {
      const std::string path = folder.File(TemporaryName(20)) + "/" + file;
      const GatedFiles files([&](const FileCall& call) {
        return call.kind == "read" && call.path == path ? EIO : GatedFiles::kGoes;
      });
      (void)CleanCheckpoints(folder.path());
    }
    CHECK(Found(folder.path()).size() == 1);
  }
}

TEST_CASE("Checkpoint folder: wherever removal ends there is a whole one, and cleaning finishes",
          "[save]") {
  bool ended = true;
  int points = 0;
  for (; ended; ++points) {
    const TemporaryFolder folder;
    for (const int64_t step : {10, 20, 30}) Make(folder.File(CheckpointName(step)), step);
    {
      EndAfter calls(points);
      const absl::Status pruned = PruneCheckpoints(folder.path(), INT64_MAX, 1, 0).status();
      ended = calls.ended();
      CHECK(pruned.ok() == !ended);
    }
    const auto found = FindCheckpoints(folder.path());
    REQUIRE_OK(found.status());
    REQUIRE(!found->empty());
    CHECK(found->back().step == 30);
    for (const FoundCheckpoint& checkpoint : *found) {
      CHECK_OK(CheckpointReader::Open(checkpoint.path)->Verify(nullptr));
    }
    CHECK_OK(CleanCheckpoints(folder.path()));
    for (const std::string& name : folder.Names()) CHECK(name[0] != '.');
    CHECK_OK(PruneCheckpoints(folder.path(), INT64_MAX, 1, 0).status());
    CHECK(SortedNames(folder) == Names{"step-00000030"});
  }
  CHECK(points > 10);
}

TEST_CASE("Checkpoint folder: wherever cleaning ends the one saved again is there", "[save]") {
  bool ended = true;
  int points = 0;
  for (; ended; ++points) {
    const TemporaryFolder folder;
    Make(folder.File(CheckpointName(10)), 10);
    Make(folder.File(TemporaryName(10)), 10);
    fs::create_directory(folder.File(TemporaryName(20)));
    {
      EndAfter calls(points);
      const absl::Status cleaned = CleanCheckpoints(folder.path());
      ended = calls.ended();
      CHECK(cleaned.ok() == !ended);
    }
    const auto latest = LatestCheckpoint(folder.path());
    REQUIRE_OK(latest.status());
    CHECK_OK(CheckpointReader::Open(latest->path)->Verify(nullptr));
    CHECK_OK(CleanCheckpoints(folder.path()));
    CHECK(SortedNames(folder) == Names{"step-00000010"});
  }
  CHECK(points > 5);
}

}  // namespace
}  // namespace zero::test
