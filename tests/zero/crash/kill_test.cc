// The process is killed at every call of a save that makes, writes, syncs, renames or removes
// something. A restart finds a complete checkpoint, old or new, and goes on bit for bit.
#include <string>

#include "tests/catch.h"
#include "tests/io/gated_files.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/crash/saving_run.h"

namespace zero::test {
namespace {

// Kills at every call; how often that happened.
int64_t KillEverywhere(const SavingRun& run) {
  INFO(run.Name());
  Outcome whole;
  int64_t calls = 0;
  {
    const TemporaryFolder folder;
    GatedFiles files(nullptr, /*armed=*/false);
    whole = run.Run(
        folder.path(), [&](int) { files.Arm(); }, [&](int) { files.Disarm(); });
    REQUIRE_OK(whole.status);
    calls = files.calls();
    CHECK(folder.Names() == std::vector<std::string>{"step-00000004"});
  }
  int64_t old = 0;
  int64_t kills = 0;
  for (int64_t n = 1; n <= calls; ++n) {
    INFO("killed at call " << n << " of " << calls);
    const TemporaryFolder folder;
    const ProcessEnd end = InProcess([&]() -> std::string {
      GatedFiles files(KillAt(n), /*armed=*/false);
      const Outcome outcome = run.Run(
          folder.path(), [&](int) { files.Arm(); }, [&](int) { files.Disarm(); });
      if (files.calls() >= n) return "lived on after the call";
      return outcome.status.ToString();
    });
    // Threads take turns: a run may need a few calls less than another, and come to its end.
    if (end.killed) {
      ++kills;
    } else {
      CHECK(end.said == "OK");
    }
    const ProcessEnd restarted = InProcess([&]() -> std::string {
      int64_t step = 0;
      const std::string wrong = Restart(run, folder.path(), whole, &step);
      return wrong.empty() && step == kFirstSave ? "old" : wrong;
    });
    if (restarted.said == "old") {
      ++old;
    } else {
      CHECK(restarted.said == "");
    }
  }
  // Both happen.
  CHECK(old > 0);
  CHECK(old < calls);
  return kills;
}

}  // namespace

TEST_CASE("Kill: whatever call of a save ends the process a restart goes on bit for bit",
          "[zero][checkpoint][crash]") {
  int64_t points = 0;
  points += KillEverywhere({1, 0, false, "odd"});
  points += KillEverywhere({2, 3, false, "mixed"});
  points += KillEverywhere({3, 1, true, "mixed"});
  points += KillEverywhere({4, 2, true, "large"});
  points += KillEverywhere({4, 3, false, "tiny"});
  points += KillEverywhere({5, 3, true, "odd"});
  points += KillEverywhere({2, 3, false, "blocks"});
  points += KillEverywhere({2, 1, true, "blocks"});
  INFO(points << " points");
  CHECK(points >= 200);
}

}  // namespace zero::test
