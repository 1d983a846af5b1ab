// SaveWeights over older weights: what a reader may find at any moment, and what a refusal leaves.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/catch.h"
#include "tests/io/gated_files.h"
#include "tests/zero/saved_folders.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

// `gate`, for the calls that change something; nothing is synced, since nothing here looks at the
// disk.
GatedFiles::Gate ForChanges(GatedFiles::Gate gate) {
  return [gate = std::move(gate)](const FileCall& call) {
    const int next = call.number > 0 ? gate(call) : GatedFiles::kGoes;
    return next == GatedFiles::kGoes && call.kind == "fsync" ? GatedFiles::kNothing : next;
  };
}

// Old and new weights: bytes of their largest shards, so that they lie in how many files.
struct Replacement {
  const char* what;
  int64_t old_limit;
  int64_t new_limit;
};
constexpr int64_t kOne = 1'000'000;
constexpr Replacement kReplacements[] = {
    {"one file over one", kOne, kOne},   {"one file over shards", 500, kOne},
    {"shards over one file", kOne, 500}, {"shards over as many", 500, 500},
    {"few shards over many", 300, 900},  {"many shards over few", 900, 300}};

constexpr int kOldSeed = 1;
constexpr int kNewSeed = 2;

Model SavedModel() { return MakeModel("odd", DType::kBF16); }

SaveWeightsOptions Options(int seed, int64_t limit) {
  SaveWeightsOptions options;
  options.max_shard_bytes = limit;
  options.files = {{"config.json", absl::StrCat("{\"seed\": ", seed, "}")},
                   {"same.txt", "the same"}};
  return options;
}

absl::Status SaveAs(int ranks, int seed, const std::string& folder, int64_t limit) {
  Config config;
  return Run({config, SavedModel(), ranks, seed, [&](Rank& rank) {
                return rank.optimizer->SaveWeights(folder, Options(seed, limit)).status();
              }});
}

}  // namespace

TEST_CASE("SaveWeights: at no moment does a reader find new weights among old ones",
          "[zero][save]") {
  const FileContents old_weights = ExpectedTensors(SavedModel(), kOldSeed, std::nullopt);
  const FileContents new_weights = ExpectedTensors(SavedModel(), kNewSeed, std::nullopt);
  const UnsyncedFiles files_in_force;
  for (const Replacement& replacement : kReplacements) {
    INFO(replacement.what);
    const TemporaryFolder folder;
    REQUIRE_OK(SaveAs(2, kOldSeed, folder.path(), replacement.old_limit));
    std::mutex mutex;
    std::set<std::string> found;
    {
      // The renames are those of one rank; before them nothing is to be seen.
      const GatedFiles files(ForChanges([&](const FileCall& call) {
        if (call.kind == "write") return GatedFiles::kGoes;
        const auto tensors = ReadTensors(folder.path());
        const std::lock_guard<std::mutex> lock(mutex);
        found.insert(!tensors.ok()             ? "none"
                     : *tensors == old_weights ? "old"
                     : *tensors == new_weights ? "new"
                                               : "mixed");
        // An index is there only with the files that it names.
        if (absl::IsNotFound(tensors.status()) &&
            fs::exists(folder.File("model.safetensors.index.json"))) {
          found.insert("dangling");
        }
        // What other readers take first.
        const auto single = SafetensorsFile::Open(folder.File("model.safetensors"));
        if (single.ok() && single->tensors().size() != old_weights.size()) found.insert("partial");
        return GatedFiles::kGoes;
      }));
      REQUIRE_OK(SaveAs(2, kNewSeed, folder.path(), replacement.new_limit));
    }
    std::set<std::string> allowed = {"old", "new"};
    // Shards have the same names: there is a moment without any weights.
    if (replacement.old_limit == replacement.new_limit && replacement.old_limit != kOne) {
      allowed.insert("none");
    }
    CHECK(found == allowed);
    const auto tensors = ReadTensors(folder.path());
    REQUIRE_OK(tensors.status());
    CHECK(*tensors == new_weights);
    // Nothing of the old ones is left.
    const TemporaryFolder alone;
    REQUIRE_OK(SaveAs(2, kNewSeed, alone.path(), replacement.new_limit));
    CHECK(ReadFolder(folder.path()) == ReadFolder(alone.path()));
  }
}

TEST_CASE("SaveWeights: whatever call fails every rank is told and old or new files are whole",
          "[zero][save][errors]") {
  const UnsyncedFiles files_in_force;
  for (const Replacement& replacement : kReplacements) {
    const TemporaryFolder before, after;
    REQUIRE_OK(SaveAs(1, kOldSeed, before.File("model"), replacement.old_limit));
    REQUIRE_OK(SaveAs(1, kNewSeed, after.File("model"), replacement.new_limit));
    const FileContents old_files = ReadFolder(before.File("model"));
    const FileContents new_files = ReadFolder(after.File("model"));
    int refused = 0;
    for (int n = 1;; ++n) {
      const int error = n % 2 == 0 ? EIO : ENOSPC;
      INFO(replacement.what << ", call " << n << ": " << std::strerror(error));
      const TemporaryFolder folder;
      fs::copy(before.File("model"), folder.File("model"), fs::copy_options::recursive);
      std::string failed;
      std::vector<std::string> told(2);
      bool reached = false;
      {
        const GatedFiles files(ForChanges([&](const FileCall& call) {
          if (call.number != n) return GatedFiles::kGoes;
          failed = call.kind + " " + call.path;
          reached = true;
          return error;
        }));
        Config config;
        REQUIRE_OK(Run({config, SavedModel(), 2, kNewSeed, [&](Rank& rank) -> absl::Status {
                          const absl::Status status =
                              rank.optimizer
                                  ->SaveWeights(folder.File("model"),
                                                Options(kNewSeed, replacement.new_limit))
                                  .status();
                          told[static_cast<size_t>(rank.group->rank())] =
                              std::string(status.message());
                          // The group lives.
                          return rank.optimizer->Finish();
                        }}));
      }
      if (!reached) break;
      INFO(failed << ": " << told[0]);
      CHECK(told[0] == told[1]);
      const FileContents now = ReadFolder(folder.File("model"));
      if (told[0].empty()) {
        // The removal of a probe, which goes with its folder.
        CHECK(absl::StartsWith(failed, "unlink"));
        CHECK(now == new_files);
        continue;
      }
      ++refused;
      CHECK(absl::StrContains(told[0], std::strerror(error)));
      CHECK(absl::StrContains(told[0], folder.File("model")));
      if (absl::StrContains(told[0], "the new weights have replaced the old ones")) {
        // What is left of the old ones, and of the staging folder, is not what is read.
        const auto tensors = ReadTensors(folder.File("model"));
        REQUIRE_OK(tensors.status());
        CHECK(*tensors == ExpectedTensors(SavedModel(), kNewSeed, std::nullopt));
        CHECK((absl::StartsWith(failed, "fsync") || absl::StartsWith(failed, "unlink") ||
               absl::StartsWith(failed, "rmdir")));
      } else {
        CHECK(now == old_files);
      }
      // The next one succeeds and cleans up.
      if (n % 3 != 0) continue;
      REQUIRE_OK(SaveAs(2, kNewSeed, folder.File("model"), replacement.new_limit));
      CHECK(ReadFolder(folder.File("model")) == new_files);
    }
    CHECK(refused > 20);
  }
}

TEST_CASE("SaveWeights: a disk of one rank that is full is told with path and bytes to all",
          "[zero][save][errors]") {
  const int error = GENERATE(ENOSPC, EDQUOT);
  const TemporaryFolder folder;
  REQUIRE_OK(SaveAs(1, kOldSeed, folder.File("a"), kOne));
  REQUIRE_OK(SaveAs(1, kOldSeed, folder.File("b"), kOne));
  const FileContents before = ReadFolder(folder.File("b"));
  // Headers fit, tensors do not; and it stays so.
  const std::string full = folder.File("b") + "/";
  const std::string full_itself = fs::canonical(folder.File("b")).string() + "/";
  std::atomic<int> refused{0};
  const GatedFiles files(ForChanges([&](const FileCall& call) {
    const bool tensors = call.kind == "write" && absl::StartsWith(call.path, full_itself) &&
                         !absl::StrContains(call.path, ".tmp");
    return !tensors || ++refused == 1 ? GatedFiles::kGoes : error;
  }));
  Config config;
  REQUIRE_OK(Run({config, SavedModel(), 3, kNewSeed, [&](Rank& rank) -> absl::Status {
                    const std::string path = folder.File(rank.group->rank() == 1 ? "b" : "a");
                    const absl::Status status =
                        rank.optimizer->SaveWeights(path, Options(kNewSeed, kOne)).status();
                    for (const std::string& word : std::vector<std::string>{
                             "rank 1: ", full, "writing ", " bytes", std::strerror(error)}) {
                      if (!absl::StrContains(std::string(status.message()), word)) {
                        return absl::InternalError(
                            absl::StrCat(word, " not in ", status.ToString()));
                      }
                    }
                    // It is a save that failed, not the training.
                    if (!absl::IsResourceExhausted(status)) return status;
                    return rank.optimizer->BeginPass(Pass::kTrain);
                  }}));
  CHECK(refused > 1);
  CHECK(ReadFolder(folder.File("a")) == before);
  CHECK(ReadFolder(folder.File("b")) == before);
}

TEST_CASE("SaveWeights: a group that fails meanwhile ends it and leaves the old files",
          "[zero][save][errors]") {
  const bool apart = GENERATE(false, true);
  const UnsyncedFiles files_in_force;
  const TemporaryFolder before;
  REQUIRE_OK(SaveAs(1, kOldSeed, before.File("a"), 500));
  const FileContents old_files = ReadFolder(before.File("a"));
  int failed = 0;
  for (int n = 1;; ++n) {
    const TemporaryFolder folder;
    for (const char* name : {"a", "b"}) {
      fs::copy(before.File("a"), folder.File(name), fs::copy_options::recursive);
    }
    std::vector<absl::Status> told(3);
    std::atomic<bool> replacing{false};
    {
      ProcessGroup* group = nullptr;
      LocalWorld world(3, absl::Seconds(20));
      group = world.group(1);
      const GatedFiles files(ForChanges([&](const FileCall& call) {
        if (call.kind == "rename" && !absl::StrContains(call.path, ".saving-")) replacing = true;
        if (call.number == n && !replacing) {
          group->Abort(absl::CancelledError("rank 1 was killed"));
        }
        return GatedFiles::kGoes;
      }));
      (void)RunRanks(world, [&](ProcessGroup* own) -> absl::Status {
        auto rank = Rank::Create(Config(), SavedModel(), own);
        if (!rank.ok()) return rank.status();
        const absl::Status written = rank->optimizer->Write(State::kMaster, Values(kNewSeed));
        if (!written.ok()) return written;
        const auto r = static_cast<size_t>(own->rank());
        told[r] =
            rank->optimizer
                ->SaveWeights(folder.File(apart && r == 2 ? "b" : "a"), Options(kNewSeed, 500))
                .status();
        return told[r];
      });
    }
    // The renames do not wait for anybody.
    if (replacing) break;
    ++failed;
    INFO("call " << n << ": " << told[0].ToString());
    for (const absl::Status& status : told) CHECK_FALSE(status.ok());
    CHECK_THAT(told[0].ToString(), ContainsSubstring("rank 1 was killed"));
    CHECK(ReadFolder(folder.File("a")) == old_files);
    CHECK(ReadFolder(folder.File("b")) == old_files);
  }
  CHECK(failed > 20);
}

TEST_CASE("SaveWeights: what a killed save left is removed by the next", "[zero][save]") {
  const UnsyncedFiles files_in_force;
  const TemporaryFolder folder;
  const std::string left = folder.File(".saving-0123456789abcdef");
  fs::create_directories(left + "/old");
  WriteFile(left + "/old/model.safetensors", "x");
  WriteFile(folder.File(".saving-not"), "mine");
  REQUIRE_OK(SaveAs(2, kNewSeed, folder.path(), kOne));
  FileContents files = ReadFolder(folder.path());
  CHECK(files.size() == 4);
  CHECK(files.count(".saving-not") == 1);
}

TEST_CASE("SaveWeights: a folder in the place of a file is named before anything changes",
          "[zero][save][errors]") {
  const UnsyncedFiles files_in_force;
  for (const char* name : {"model.safetensors", "config.json", "model.safetensors.index.json"}) {
    const TemporaryFolder folder;
    fs::create_directories(folder.File(name) + "/x");
    const absl::Status status = SaveAs(2, kNewSeed, folder.path(), kOne);
    CHECK(absl::IsFailedPrecondition(status));
    CHECK_THAT(std::string(status.message()), ContainsSubstring(folder.File(name)));
    CHECK(ReadFolder(folder.path()) == FileContents{{std::string(name) + "/", ""}});
  }
  const TemporaryFolder folder;
  WriteFile(folder.File("file"), "x");
  const absl::Status status = SaveAs(2, kNewSeed, folder.File("file/below"), kOne);
  CHECK_FALSE(status.ok());
  CHECK_THAT(std::string(status.message()), ContainsSubstring(folder.File("file")));
}

}  // namespace zero::test
