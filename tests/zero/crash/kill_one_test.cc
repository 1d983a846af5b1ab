// Ranks are processes, and one is killed at a call of a save. The others end with an error, soon,
// and a restart goes on bit for bit.
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collectives/gloo_group.h"
#include "collectives/rendezvous.h"
#include "device/status.h"
#include "tests/catch.h"
#include "tests/collectives/rendezvous_test_util.h"
#include "tests/io/gated_files.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/crash/saving_run.h"

namespace zero::test {
namespace {

constexpr double kSoon = 20;  // seconds; the deadline is longer

// This process as one rank of `size`.
Backend ProcessBackend(int rank, int port) {
  Backend backend = HostBackend();
  backend.run_ranks = [rank, port](int size, absl::Duration deadline,
                                   const std::function<absl::Status(ProcessGroup*)>& body) {
    const auto run = [&]() -> absl::Status {
      RendezvousOptions options;
      options.rank = rank;
      options.size = size;
      options.port = port;
      options.deadline = deadline;
      ZERO_ASSIGN_OR_RETURN(const auto rendezvous, Rendezvous::Create(options));
      ZERO_ASSIGN_OR_RETURN(const auto group, GlooGroup::Create({rendezvous.get(), deadline}));
      ZERO_RETURN_IF_ERROR(body(group.get()));
      return rendezvous->Close();
    };
    const absl::Status status = run();
    // The other ranks' outcomes are in other processes: nothing to compare here.
    return status.ok() ? absl::CancelledError("ended") : status;
  };
  return backend;
}

// One rank's process: what it says is how the run ended, and how many calls there were.
std::string RunRank(const SavingRun& run, int rank, int port, const std::string& folder,
                    int64_t kill_at) {
  GatedFiles files(KillAt(kill_at), /*armed=*/false);
  const Outcome outcome = run.Run(
      folder, [&](int) { files.Arm(); }, [&](int) { files.Disarm(); }, ProcessBackend(rank, port));
  return absl::IsCancelled(outcome.status) ? absl::StrCat("ended ", files.calls())
                                           : outcome.status.ToString();
}

std::vector<ProcessEnd> RunProcesses(const SavingRun& run, const std::string& folder, int victim,
                                     int64_t kill_at) {
  const int port = FreePort();
  std::vector<PendingProcess> processes;
  for (int rank = 0; rank < run.ranks; ++rank) {
    processes.push_back(StartProcess(
        [&, rank] { return RunRank(run, rank, port, folder, rank == victim ? kill_at : 0); }));
  }
  std::vector<ProcessEnd> ends;
  for (PendingProcess& process : processes) ends.push_back(EndOf(process));
  return ends;
}

int64_t KillOneEverywhere(const SavingRun& run, int victim) {
  INFO(run.Name() << ", rank " << victim << " is killed");
  const Outcome whole = RunToy(run.Toy());
  int64_t calls = 0;
  {
    const TemporaryFolder folder;
    const std::vector<ProcessEnd> ends = RunProcesses(run, folder.path(), -1, 0);
    for (const ProcessEnd& end : ends) {
      INFO(end.said);
      REQUIRE(end.said.rfind("ended ", 0) == 0);
    }
    REQUIRE(absl::SimpleAtoi(ends[static_cast<size_t>(victim)].said.substr(6), &calls));
  }
  for (int64_t n = 1; n <= calls; ++n) {
    INFO("at call " << n << " of " << calls);
    const TemporaryFolder folder;
    const double start = Seconds();
    const std::vector<ProcessEnd> ends = RunProcesses(run, folder.path(), victim, n);
    CHECK(Seconds() - start < kSoon);
    const bool killed = ends[static_cast<size_t>(victim)].killed;
    // A run may need fewer calls than another, and come to its end.
    const std::string& said = ends[static_cast<size_t>(victim)].said;
    int64_t made = 0;
    CHECK((killed ||
           (said.rfind("ended ", 0) == 0 && absl::SimpleAtoi(said.substr(6), &made) && made < n)));
    for (int rank = 0; rank < run.ranks && killed; ++rank) {
      if (rank == victim) continue;
      INFO(ends[static_cast<size_t>(rank)].said);
      // Killed after the ranks had agreed that all is done, the victim is missed a step later.
      CHECK_THAT(ends[static_cast<size_t>(rank)].said,
                 ContainsSubstring(absl::StrCat("rank ", victim)));
    }
    const ProcessEnd restarted = InProcess([&] { return Restart(run, folder.path(), whole); });
    CHECK(restarted.said == "");
  }
  return calls;
}

}  // namespace

TEST_CASE("Kill: one rank at whatever call of a save ends the others and a restart goes on",
          "[zero][checkpoint][crash]") {
  const SavingRun run{2, 3, true, "mixed"};
  const int64_t first = KillOneEverywhere(run, 0);
  const int64_t last = KillOneEverywhere(run, 1);
  CHECK(first > last);
  CHECK(last >= 4);
}

}  // namespace zero::test
