// The disk fails in a save. Every rank is told what and where, the older checkpoint stays, training
// goes on, and the next save succeeds.
#include <sys/mount.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/folder.h"
#include "tests/catch.h"
#include "tests/io/gated_files.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/crash/saving_run.h"
#include "zero/save/checkpoint_folder.h"
#include "zero/save/checkpoint_reader.h"

namespace zero::test {
namespace {

// What the ranks are told of a save that fails, and of the one after it.
struct Told {
  std::vector<absl::Status> second, third;
  std::vector<std::string> left;  // in the folder after the second save
};

// Saves after steps 2, 4 and 5; `second` is called on every rank before the second save and `third`
// on rank 0 before the third.
Told Save(const SavingRun& run, const std::string& folder, const std::function<void()>& second,
          const std::function<void()>& third, Outcome* outcome) {
  Told told;
  told.second.resize(static_cast<size_t>(run.ranks));
  told.third = told.second;
  ToyRun toy = run.Toy();
  const auto save = [&](ShardedOptimizer& optimizer) {
    absl::Status status = optimizer.SaveCheckpoint(folder).status();
    return status.ok() ? optimizer.FinishCheckpoint() : status;
  };
  toy.between = [&](ShardedOptimizer& optimizer, int rank, int step) -> absl::Status {
    if (step == kFirstSave) return save(optimizer);
    if (step == kSecondSave) {
      second();
      told.second[static_cast<size_t>(rank)] = save(optimizer);
      // Other ranks may be further on, but nobody saves again before rank 0 does.
      if (rank == 0) told.left = ListFolder(folder).value_or(std::vector<std::string>{"?"});
    }
    if (step == kSecondSave + 1) {
      if (rank == 0) third();
      told.third[static_cast<size_t>(rank)] = save(optimizer);
    }
    return absl::OkStatus();
  };
  *outcome = RunToy(toy);
  return told;
}

void CheckSound(const std::string& path) {
  auto reader = CheckpointReader::Open(path);
  REQUIRE_OK(reader.status());
  CHECK_OK(reader->Verify(nullptr));
}

int64_t FailEverywhere(const SavingRun& run, int error, const std::string& words) {
  INFO(run.Name() << ", " << words);
  int64_t calls = 1000;
  Outcome whole;
  for (int64_t n = 0; n <= calls; ++n) {
    INFO("call " << n << " of " << calls << " fails");
    const TemporaryFolder folder;
    std::string failed;
    std::mutex mutex;
    bool removing = false;
    GatedFiles files(
        [&](const FileCall& call) {
          if (n == 0 || call.number != n) return GatedFiles::kGoes;
          const std::lock_guard<std::mutex> lock(mutex);
          failed = call.path;
          removing = call.kind == "unlink" || call.kind == "rmdir";
          return error;
        },
        /*armed=*/false);
    Outcome outcome;
    const Told told = Save(
        run, folder.path(), [&] { files.Arm(); }, [&] { files.Disarm(); }, &outcome);
    CHECK_OK(outcome.status);
    if (n == 0) {
      // Nothing fails: what the others are compared with.
      calls = files.calls();
      whole = outcome;
      for (const absl::Status& status : told.second) CHECK_OK(status);
      CHECK(told.left == std::vector<std::string>{"step-00000002", "step-00000004"});
      continue;
    }
    if (failed.empty()) continue;
    CHECK(FirstDifference(whole, outcome) == "");
    const bool all_ok = told.second[0].ok();
    for (const absl::Status& status : told.second) {
      CHECK(status == told.second[0]);
      if (status.ok()) continue;
      INFO(status.ToString());
      CHECK_THAT(std::string(status.message()), ContainsSubstring(words));
      CHECK_THAT(std::string(status.message()), ContainsSubstring(folder.path()));
    }
    // What could not be removed does no harm to the checkpoint.
    if (all_ok) CHECK(removing);
    const auto found = FindCheckpoints(folder.path());
    REQUIRE_OK(found.status());
    REQUIRE(!found->empty());
    CHECK((*found)[0].step == kFirstSave);
    CheckSound((*found)[0].path);
    if (!all_ok && !removing) {
      // One that has its manifest is complete, whatever its name is.
      for (const std::string& name : told.left) {
        CHECK((absl::StartsWith(name, "step-") || ReadManifest(folder.File(name)).ok()));
      }
    }
    for (const absl::Status& status : told.third) CHECK_OK(status);
    CheckSound(folder.File("step-00000005"));
  }
  return calls;
}

}  // namespace

TEST_CASE("Save faults: whatever call fails every rank is told and the next save succeeds",
          "[zero][checkpoint][crash]") {
  CHECK(FailEverywhere({2, 3, false, "mixed"}, ENOSPC, "No space left on device") > 15);
  CHECK(FailEverywhere({2, 1, true, "odd"}, EIO, "Input/output error") > 15);
  CHECK(FailEverywhere({3, 2, true, "large"}, EDQUOT, "Disk quota exceeded") > 15);
  CHECK(FailEverywhere({2, 3, true, "blocks"}, ENOSPC, "No space left on device") > 15);
}

// Whatever a stream does between the call and the end of the save fails: that ends the group, as in
// any verb, and the older checkpoint is what there is.
TEST_CASE("Save faults: an operation of a stream that fails ends all ranks with its error",
          "[zero][checkpoint][crash]") {
  const SavingRun run{2, 1, true, "odd"};
  int64_t failed = 0;
  for (int64_t n = 1; n < 400; ++n) {
    INFO("operation " << n);
    const TemporaryFolder folder;
    std::atomic<bool> armed{false};
    std::atomic<int64_t> operations{0};
    const Backend backend = HostBackend([&](const std::string&, const char*) {
      if (!armed || ++operations != n) return absl::OkStatus();
      return absl::InternalError("planted");
    });
    const Outcome outcome = run.Run(
        folder.path(), [&](int) { armed = true; }, [&](int) { armed = false; }, backend);
    const auto found = FindCheckpoints(folder.path());
    REQUIRE_OK(found.status());
    REQUIRE(!found->empty());
    for (const FoundCheckpoint& checkpoint : *found) CheckSound(checkpoint.path);
    if (operations < n) {
      CHECK_OK(outcome.status);
      break;
    }
    ++failed;
    INFO(outcome.status.ToString());
    CHECK(!outcome.status.ok());
    CHECK_THAT(std::string(outcome.status.message()), ContainsSubstring("planted"));
    REQUIRE_OK(CleanCheckpoints(folder.path()));
    for (const std::string& name : folder.Names()) CHECK(absl::StartsWith(name, "step-"));
  }
  CHECK(failed > 20);
}

TEST_CASE("Save faults: a step that is saved again is never without a checkpoint",
          "[zero][checkpoint][crash]") {
  const SavingRun run{2, 3, false, "odd"};
  int64_t calls = 1000;
  for (int64_t n = 0; n <= calls; ++n) {
    INFO("call " << n << " of " << calls << " fails");
    const TemporaryFolder folder;
    GatedFiles files(
        [n](const FileCall& call) { return n > 0 && call.number == n ? EIO : GatedFiles::kGoes; },
        /*armed=*/false);
    ToyRun toy = run.Toy();
    toy.steps = 1;
    toy.between = [&](ShardedOptimizer& optimizer, int, int step) -> absl::Status {
      if (step == 0) return absl::OkStatus();
      ZERO_RETURN_IF_ERROR(optimizer.SaveCheckpoint(folder.path()).status());
      files.Arm();
      (void)optimizer.SaveCheckpoint(folder.path());
      return absl::OkStatus();
    };
    CHECK_OK(RunToy(toy).status);
    if (n == 0) calls = files.calls();
    files.Disarm();
    const auto found = FindCheckpoints(folder.path());
    REQUIRE_OK(found.status());
    REQUIRE(!found->empty());
    for (const FoundCheckpoint& checkpoint : *found) CheckSound(checkpoint.path);
    REQUIRE_OK(CleanCheckpoints(folder.path()));
    CHECK(folder.Names() == std::vector<std::string>{"step-00000001"});
  }
  CHECK(calls > 15);
}

TEST_CASE("Save faults: a disk that takes longer than the deadline ends nothing",
          "[zero][checkpoint][crash]") {
  const bool asynchronous = GENERATE(false, true);
  const SavingRun run{2, 3, asynchronous, "large"};
  const TemporaryFolder folder;
  std::atomic<bool> slow{false};
  const GatedFiles files([&](const FileCall& call) {
    if (slow && call.kind == "fsync" && absl::StrContains(call.path, "rank-00001")) {
      std::this_thread::sleep_for(std::chrono::seconds(7));
    }
    return GatedFiles::kGoes;
  });
  ToyRun toy = run.Toy();
  toy.deadline = absl::Seconds(3);
  toy.between = [&](ShardedOptimizer& optimizer, int, int step) -> absl::Status {
    if (step != kFirstSave) return absl::OkStatus();
    slow = true;
    ZERO_RETURN_IF_ERROR(optimizer.SaveCheckpoint(folder.path()).status());
    ZERO_RETURN_IF_ERROR(optimizer.FinishCheckpoint());
    slow = false;
    return absl::OkStatus();
  };
  CHECK_OK(RunToy(toy).status);
  CheckSound(folder.File("step-00000002"));
}

// Rank 0 is in its first write while rank 1's failure goes around; then it gives up too.
TEST_CASE("Save faults: what ended a save is told and not that slower ranks then gave it up",
          "[zero][checkpoint][crash]") {
  const SavingRun run{2, 3, true, "blocks"};
  const TemporaryFolder folder;
  std::promise<void> later, begin;
  const std::shared_future<void> is_later = later.get_future().share();
  const std::shared_future<void> has_begun = begin.get_future().share();
  std::atomic<bool> begun{false};
  const GatedFiles files([&](const FileCall& call) {
    if (call.kind != "write") return GatedFiles::kGoes;
    if (absl::StrContains(call.path, "rank-00001")) {
      has_begun.wait();
      return ENOSPC;
    }
    if (absl::StrContains(call.path, "rank-00000") && !begun.exchange(true)) {
      begin.set_value();
      is_later.wait();
    }
    return GatedFiles::kGoes;
  });
  ToyRun toy = run.Toy();
  // More than a writer takes before it waits for the disk, and the call returns at once.
  toy.model.units[1].parameters[0].shape = {1024, 1024};
  toy.config.checkpoint_memory = 64 << 20;
  toy.steps = 12;
  std::array<absl::Status, 2> told;
  std::array<std::optional<Pending<CheckpointReport>>, 2> pending;
  toy.between = [&](ShardedOptimizer& optimizer, int rank, int step) -> absl::Status {
    const auto r = static_cast<size_t>(rank);
    if (step == kFirstSave) {
      ZERO_ASSIGN_OR_RETURN(pending[r], optimizer.SaveCheckpoint(folder.path()));
    }
    if (step == 8 && rank == 0) later.set_value();
    if (step == 10) {
      (void)optimizer.FinishCheckpoint();
      told[r] = pending[r]->Get().status();
    }
    return absl::OkStatus();
  };
  CHECK_OK(RunToy(toy).status);
  for (const absl::Status& status : told) {
    CHECK(absl::IsResourceExhausted(status));
    CHECK_THAT(std::string(status.message()),
               ContainsSubstring("rank 1: ") && ContainsSubstring("No space left on device"));
  }
}

TEST_CASE("Save faults: writes that take half of what they are given are repeated",
          "[zero][checkpoint][crash]") {
  const SavingRun run{3, 3, true, "large"};
  const TemporaryFolder folder;
  std::atomic<int64_t> halved{0};
  GatedFiles files(
      [&](const FileCall& call) {
        const bool half = call.kind == "write" && call.number % 2 == 0;
        halved += half ? 1 : 0;
        return half ? GatedFiles::kHalf : GatedFiles::kGoes;
      },
      /*armed=*/false);
  Outcome outcome;
  const Told told = Save(
      run, folder.path(), [&] { files.Arm(); }, [] {}, &outcome);
  for (const absl::Status& status : told.second) CHECK_OK(status);
  CHECK(halved > 0);
  CheckSound(folder.File("step-00000004"));
}

// A file system of its own where that can be made.
class SmallDisk {
 public:
  explicit SmallDisk(const char* options) {
    mounted_ = mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, options) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount(folder_.path().c_str());
  }
  bool mounted() const { return mounted_; }
  bool MakeReadOnly() const {
    return mount("tmpfs", folder_.path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "") == 0;
  }
  bool MakeWritable() const {
    return mount("tmpfs", folder_.path().c_str(), "tmpfs", MS_REMOUNT, "") == 0;
  }
  const std::string& path() const { return folder_.path(); }

 private:
  const TemporaryFolder folder_;
  bool mounted_ = false;
};

TEST_CASE("Save faults: a disk that is full keeps the older checkpoint",
          "[zero][checkpoint][crash]") {
  const SmallDisk disk("size=1200k");
  if (!disk.mounted()) {
    WARN("skipped: no file system can be mounted here");
    return;
  }
  const SavingRun run{2, 3, false, "large"};  // 0.25 MB a checkpoint
  const std::string filler = disk.path() + "/filler";
  Outcome outcome;
  std::once_flag once;
  const Told told = Save(
      run, disk.path(),
      [&] { std::call_once(once, [&] { WriteFile(filler, std::string(900 << 10, 'x')); }); },
      [&] { unlink(filler.c_str()); }, &outcome);
  CHECK_OK(outcome.status);
  for (const absl::Status& status : told.second) {
    INFO(status.ToString());
    CHECK(absl::IsResourceExhausted(status));
    CHECK_THAT(std::string(status.message()), ContainsSubstring("No space left on device"));
    CHECK_THAT(std::string(status.message()), ContainsSubstring("bytes"));
  }
  CHECK(told.left == std::vector<std::string>{"filler", "step-00000002"});
  for (const absl::Status& status : told.third) CHECK_OK(status);
  CheckSound(disk.path() + "/step-00000002");
  CheckSound(disk.path() + "/step-00000005");
}

TEST_CASE("Save faults: a folder that cannot be written keeps what is in it",
          "[zero][checkpoint][crash]") {
  const SmallDisk disk("size=4m");
  if (!disk.mounted()) {
    WARN("skipped: no file system can be mounted here");
    return;
  }
  const SavingRun run{2, 2, true, "odd"};
  Outcome outcome;
  std::once_flag once;
  const Told told = Save(
      run, disk.path(), [&] { std::call_once(once, [&] { CHECK(disk.MakeReadOnly()); }); },
      [&] { CHECK(disk.MakeWritable()); }, &outcome);
  CHECK_OK(outcome.status);
  for (const absl::Status& status : told.second) {
    CHECK(absl::IsPermissionDenied(status));
    CHECK_THAT(std::string(status.message()), ContainsSubstring("Read-only file system"));
  }
  CHECK(told.left == std::vector<std::string>{"step-00000002"});
  for (const absl::Status& status : told.third) CHECK_OK(status);
}

TEST_CASE("Save faults: a master that is not finite is named and refused unless it is forced",
          "[zero][checkpoint]") {
  const TemporaryFolder folder;
  SavingRun run{3, 1, true, "mixed"};
  ToyRun toy = run.Toy();
  toy.first_step = toy.steps;  // nothing is trained
  toy.start = [&](ShardedOptimizer& optimizer, int) -> absl::Status {
    ZERO_RETURN_IF_ERROR(optimizer.Write(
        State::kMaster, [](const Parameter& parameter, int64_t first, absl::Span<float> out) {
          for (size_t i = 0; i < out.size(); ++i) {
            const bool spoilt = parameter.name == "b.0" && first + static_cast<int64_t>(i) == 171;
            out[i] = spoilt ? NAN : 0.5f;
          }
          return absl::OkStatus();
        }));
    ZERO_RETURN_IF_ERROR(optimizer.SaveCheckpoint(folder.path()).status());
    const absl::Status refused = optimizer.FinishCheckpoint();
    if (!absl::IsFailedPrecondition(refused) ||
        !absl::StrContains(refused.message(), "'b.0' is inf or NaN at element 171")) {
      return absl::InternalError(absl::StrCat("not refused: ", refused.ToString()));
    }
    CheckpointOptions options;
    options.force = true;
    ZERO_RETURN_IF_ERROR(optimizer.SaveCheckpoint(folder.path(), options).status());
    return optimizer.FinishCheckpoint();
  };
  CHECK_OK(RunToy(toy).status);
  CHECK(folder.Names() == std::vector<std::string>{"step-00000000"});
}

}  // namespace zero::test
