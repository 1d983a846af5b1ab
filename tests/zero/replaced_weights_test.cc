// SaveWeights over older weights: what a reader may find at any moment, and what a refusal leaves.
#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <mutex>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "io/file_calls.h"
#include "tests/catch.h"
#include "tests/zero/saved_folders.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

// Looks before each call that changes a file, and makes one of them fail.
class CountedFiles : public FileCalls {
 public:
  // Called before the n-th call (from 1 on) of `kind` on `path`; false: it fails with `error`.
  using Gate = std::function<bool(int n, const std::string& kind, const std::string& path)>;
  CountedFiles(int error, Gate gate)
      : error_(error), gate_(std::move(gate)), before_(ReplaceFileCalls(this)) {}
  ~CountedFiles() override { ReplaceFileCalls(before_); }
  int calls() const { return calls_; }

  int Open(const char* path, int flags, mode_t mode) override {
    const bool creates = (flags & O_CREAT) != 0;
    if (creates && !Goes("create", path)) return -1;
    const int descriptor = FileCalls::Open(path, flags, mode);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (descriptor >= 0) paths_[descriptor] = path;
    return descriptor;
  }
  ssize_t Pwrite(int descriptor, const void* bytes, size_t count, off_t offset) override {
    return Goes("write", PathOf(descriptor)) ? FileCalls::Pwrite(descriptor, bytes, count, offset)
                                             : -1;
  }
  int Fsync(int descriptor) override {
    return Goes("fsync", PathOf(descriptor)) ? 0 : -1;  // nothing here looks at the disk
  }
  int Truncate(int descriptor, off_t bytes) override {
    return Goes("truncate", PathOf(descriptor)) ? FileCalls::Truncate(descriptor, bytes) : -1;
  }
  int Rename(const char* from, const char* to) override {
    return Goes("rename", to) ? FileCalls::Rename(from, to) : -1;
  }
  int MakeFolder(const char* path, mode_t mode) override {
    return Goes("mkdir", path) ? FileCalls::MakeFolder(path, mode) : -1;
  }
  int Unlink(const char* path) override {
    return Goes("unlink", path) ? FileCalls::Unlink(path) : -1;
  }
  int RemoveFolder(const char* path) override {
    return Goes("rmdir", path) ? FileCalls::RemoveFolder(path) : -1;
  }

 private:
  std::string PathOf(int descriptor) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return paths_[descriptor];
  }
  bool Goes(const std::string& kind, const std::string& path) {
    if (gate_(++calls_, kind, path)) return true;
    errno = error_;
    return false;
  }

  const int error_;
  const Gate gate_;
  std::atomic<int> calls_{0};
  std::mutex mutex_;
  std::map<int, std::string> paths_;
  FileCalls* const before_;
};

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
  for (const Replacement& replacement : kReplacements) {
    INFO(replacement.what);
    const TemporaryFolder folder;
    REQUIRE_OK(SaveAs(2, kOldSeed, folder.path(), replacement.old_limit));
    std::mutex mutex;
    std::set<std::string> found;
    {
      // The renames are those of one rank; before them nothing is to be seen.
      const CountedFiles files(0, [&](int, const std::string& kind, const std::string&) {
        if (kind == "write") return true;
        const auto tensors = ReadTensors(folder.path());
        const std::lock_guard<std::mutex> lock(mutex);
        found.insert(!tensors.ok()             ? "none"
                     : *tensors == old_weights ? "old"
                     : *tensors == new_weights ? "new"
                                               : "mixed");
        // What other readers take first.
        const auto single = SafetensorsFile::Open(folder.File("model.safetensors"));
        if (single.ok() && single->tensors().size() != old_weights.size()) found.insert("partial");
        return true;
      });
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

TEST_CASE("SaveWeights: whatever call fails, every rank is told and old or new files are whole",
          "[zero][save][errors]") {
  const int error = GENERATE(ENOSPC, EIO);
  for (const Replacement& replacement : kReplacements) {
    const TemporaryFolder before, after;
    REQUIRE_OK(SaveAs(1, kOldSeed, before.File("model"), replacement.old_limit));
    REQUIRE_OK(SaveAs(1, kNewSeed, after.File("model"), replacement.new_limit));
    const FileContents old_files = ReadFolder(before.File("model"));
    const FileContents new_files = ReadFolder(after.File("model"));
    int refused = 0;
    for (int n = 1;; ++n) {
      INFO(replacement.what << ", call " << n << ": " << std::strerror(error));
      const TemporaryFolder folder;
      fs::copy(before.File("model"), folder.File("model"), fs::copy_options::recursive);
      std::string failed;
      std::vector<std::string> told(2);
      bool reached = false;
      {
        const CountedFiles files(error,
                                 [&](int call, const std::string& kind, const std::string& path) {
                                   if (call != n) return true;
                                   failed = kind + " " + path;
                                   reached = true;
                                   return false;
                                 });
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
      REQUIRE_OK(SaveAs(2, kNewSeed, folder.File("model"), replacement.new_limit));
      CHECK(ReadFolder(folder.File("model")) == new_files);
    }
    CHECK(refused > 20);
  }
}

}  // namespace zero::test
