// Ranks are processes and some of them are killed. The others end soon, with exit status 1 and one
// line that names the rank and the operation, and nothing is left of the job.
#include <signal.h>

#include <vector>

#include "tests/catch.h"
#include "tests/collectives/processes.h"
#include "tests/collectives/rendezvous_test_util.h"

namespace zero::test {
namespace {

constexpr double kSoon = 30;         // seconds; the deadline that must not be waited for is longer
const std::string kLong = "300000";  // milliseconds
const std::string kShort = "3000";

// Three ranks of gloo_rank, started by hand.
class Job {
 public:
  Job(const std::string& scenario, int victim, const std::string& deadline, int absent = -1) {
    const std::string port = std::to_string(FreePort());
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == absent) continue;
      processes_.emplace_back(ZERO_GLOO_RANK,
                              std::vector<std::string>{scenario, std::to_string(victim), deadline},
                              std::map<std::string, std::string>{{"RANK", std::to_string(rank)},
                                                                 {"WORLD_SIZE", "3"},
                                                                 {"LOCAL_RANK", "0"},
                                                                 {"MASTER_ADDR", "127.0.0.1"},
                                                                 {"MASTER_PORT", port}},
                              temporary_);
    }
  }
  Process& process(int i) { return processes_[static_cast<size_t>(i)]; }
  std::vector<Ended> Wait() {
    std::vector<Ended> ended;
    for (Process& process : processes_) ended.push_back(process.Wait());
    return ended;
  }
  // Nothing in the temporary folder, nothing new in shared memory.
  void CheckNothingLeft() const {
    CHECK(temporary_.Names().empty());
    CHECK(SameSharedMemory(shared_memory_));
  }

 private:
  const std::set<std::string> shared_memory_ = SharedMemory();
  const TemporaryFolder temporary_;
  std::vector<Process> processes_;
};

// Exit status 1 and one line with all words.
void CheckEnded(const Ended& ended, const std::vector<std::string>& words) {
  INFO("stdout: " << ended.out << "stderr: " << ended.err);
  CHECK(ended.status == 1);
  CHECK(ended.out.empty());
  CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
  for (const std::string& word : words) CHECK_THAT(ended.err, ContainsSubstring(word));
}

TEST_CASE("Death: ranks that are not killed end with status 0 and say nothing", "[collectives]") {
  Job job("none", -1, kLong);
  for (const Ended& ended : job.Wait()) {
    INFO(ended.err);
    CHECK(ended.status == 0);
    CHECK((ended.out + ended.err).empty());
  }
  job.CheckNothingLeft();
}

TEST_CASE("Death: a rank that is killed is named with the operation on all others",
          "[collectives]") {
  const std::string scenario = GENERATE("before", "waiting", "moving", "between");
  const int victim = GENERATE(0, 1, 2);
  CAPTURE(scenario, victim);
  const double start = Seconds();
  Job job(scenario, victim, kLong);
  const std::vector<Ended> ended = job.Wait();
  CHECK(Seconds() - start < kSoon);
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    if (rank == victim) {
      CHECK(ended[rank].signal == SIGKILL);
    } else {
      // A rank may be killed while another one is still connecting to it.
      const bool connecting =
          scenario == "before" && ended[rank].err.find("'gradients'") == std::string::npos;
      CheckEnded(ended[rank], {"rank " + std::to_string(victim) + " is gone",
                               connecting ? "over Gloo" : "'gradients'"});
    }
  }
  job.CheckNothingLeft();
}

TEST_CASE("Death: a rank that is stopped is named when the deadline has passed", "[collectives]") {
  const int victim = GENERATE(0, 2);
  CAPTURE(victim);
  Job job("stopped", victim, kShort);
  CHECK(job.process(victim).WaitStopped());
  const double start = Seconds();
  std::vector<Ended> ended(3);
  for (int rank = 0; rank < 3; ++rank) {
    if (rank != victim) ended[rank] = job.process(rank).Wait();
  }
  CHECK(Seconds() - start < kSoon);
  job.process(victim).Signal(SIGKILL);
  CHECK(job.process(victim).Wait().signal == SIGKILL);
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    if (rank != victim) CheckEnded(ended[rank], {"rank " + std::to_string(victim), "'gradients'"});
  }
  job.CheckNothingLeft();
}

TEST_CASE("Death: a rank that never starts is named when the deadline has passed",
          "[collectives]") {
  const int absent = GENERATE(0, 2);
  CAPTURE(absent);
  Job job("none", -1, kShort, absent);
  const double start = Seconds();
  for (const Ended& ended : job.Wait()) {
    CheckEnded(ended, {"rank " + std::to_string(absent), absent == 0 ? "reach rank 0" : "to join"});
  }
  CHECK(Seconds() - start < kSoon);
  job.CheckNothingLeft();
}

TEST_CASE("Death: an error of one rank ends all with it", "[collectives]") {
  Job job("error", 1, kLong);
  for (const Ended& ended : job.Wait()) CheckEnded(ended, {"bad sample"});
  job.CheckNothingLeft();
}

#ifdef ZERO_MPIRUN
TEST_CASE("Death: under mpirun a killed rank ends the job and leaves no process and no file",
          "[collectives]") {
  const std::string scenario = GENERATE("none", "between", "moving", "waiting");
  CAPTURE(scenario);
  const std::set<std::string> shared_memory = SharedMemory();
  const TemporaryFolder temporary;
  const std::string port = std::to_string(FreePort());
  Process mpirun(
      ZERO_MPIRUN,
      {"--allow-run-as-root", "--oversubscribe", "-np", "3", ZERO_GLOO_RANK, scenario, "1", kLong},
      {{"ZERO_JOB_TOKEN", "death-" + port},
       {"MASTER_PORT", port},
       // Open MPI's libraries leak in mpirun's own process only.
       {"ASAN_OPTIONS", "detect_leaks=0"}},
      temporary);
  const double start = Seconds();
  const Ended ended = mpirun.Wait();
  INFO(ended.err);
  CHECK(Seconds() - start < kSoon);
  if (scenario == "none") {
    CHECK(ended.status == 0);
  } else {
    CHECK(ended.status != 0);
    CHECK(ended.signal == 0);
  }
  CHECK(Soon([&] { return ProcessesWith("ZERO_JOB_TOKEN=death-" + port).empty(); }));
  CHECK(Soon([&] { return temporary.Names().empty(); }));
  CHECK(SameSharedMemory(shared_memory));
}
#endif

}  // namespace
}  // namespace zero::test
